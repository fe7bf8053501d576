"""Scikit-learn's handwritten digits: masked-patch pre-training at 8 x 8 pixels, fine-tuning at 14 x 14.

Command:   keras-vit demo
Hardware:  2 CPU cores; see docs/results.md for time and accuracy.
"""

from keras_vit.recipes.recipe import Architecture, Data, FineTune, MaskedPatch, Optimizer, Run

FEW_LABELS = 10  # a class

# Crops down to half the area teach the model several sizes of pen stroke, which the finer grid of fine-tuning needs.
MASKED_PATCH = MaskedPatch(
    architecture=Architecture(patch_size=2, depth=4, width=64, mlp_dim=256, num_heads=4),
    data=Data(dataset="digits", image_size=8, batch_size=64, min_crop_area=0.5, flip=False, cache=True),
    optimizer=Optimizer(name="adam", learning_rate=1e-3, warmup_steps=100),
    run=Run(steps_per_execution=25),
    total_steps=4_000,
)

FINE_TUNE = FineTune(
    data=Data(dataset="digits", image_size=14, batch_size=32, min_crop_area=0.7, flip=False, cache=True),
    optimizer=Optimizer(name="adamw", learning_rate=1.5e-3, warmup_steps=40, weight_decay=0.05),
    run=Run(steps_per_execution=25),
    total_steps=600,
)
