"""Scikit-learn's handwritten digits: masked-patch pre-training at 8 x 8 pixels, fine-tuning at 12 x 12.

Command:  keras-vit demo
"""

from keras_vit.recipes.recipe import Architecture, Data, FineTune, MaskedPatch, Optimizer, Run

FEW_LABELS = 10  # a class

MASKED_PATCH = MaskedPatch(
    architecture=Architecture(patch_size=2, depth=4, width=64, mlp_dim=256, num_heads=4),
    data=Data(dataset="digits", image_size=8, batch_size=64, min_crop_area=1.0, flip=False, cache=True),
    optimizer=Optimizer(name="adam", learning_rate=1e-3, warmup_steps=100),
    run=Run(steps_per_execution=25),
    total_steps=3_000,
)

FINE_TUNE = FineTune(
    data=Data(dataset="digits", image_size=12, batch_size=64, min_crop_area=1.0, flip=False, cache=True),
    optimizer=Optimizer(name="adamw", learning_rate=1e-3, warmup_steps=30, weight_decay=0.05),
    run=Run(steps_per_execution=25),
    total_steps=300,
)
