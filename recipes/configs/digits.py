"""Scikit-learn's handwritten digits: masked-patch pre-training at 8 x 8 pixels, fine-tuning at 14 x 14.

Command:   keras-vit demo
           keras-vit train digits-masked-patch --run.folder runs/digits-masked-patch
           keras-vit train digits-finetune --data.labels-per-class 10
Hardware:  2 CPU cores.
Hours:     0.02; see docs/results.md.
Accuracy:  96.7 with all labels, 88.8 with 10 per class; 92.4 and 80.8 from scratch (three seeds, see docs/results.md).
"""

from dataclasses import replace

from keras_vit.recipes.recipe import Architecture, Data, MaskedPatch, Optimizer, Run, Supervised

FEW_LABELS = 10  # per class

ARCHITECTURE = Architecture("Ti/2", depth=4, width=64, mlp_dim=256, num_heads=4)
RUN = Run(steps_per_execution=25, epoch_steps=100)

# Crops down to half the area vary the width of the strokes, which the finer grid of fine-tuning requires.
MASKED_PATCH = MaskedPatch(
    architecture=ARCHITECTURE,
    data=Data(
        dataset="digits", image_size=8, batch_size=64, crop="inception", min_crop_area=0.5, flip=False, cache=True
    ),
    optimizer=Optimizer(name="adam", learning_rate=1e-3, warmup_steps=100),
    run=RUN,
    total_steps=3_000,
)

FINE_TUNE = Supervised(
    architecture=ARCHITECTURE,
    data=Data(
        dataset="digits", image_size=14, batch_size=32, crop="inception", min_crop_area=0.7, flip=False, cache=True
    ),
    optimizer=Optimizer(name="adamw", learning_rate=1.5e-3, warmup_steps=40, weight_decay=0.05),
    run=RUN,
    total_steps=500,
)

RECIPES = {
    "digits-masked-patch": MASKED_PATCH,
    "digits-finetune": replace(FINE_TUNE, weights="runs/digits-masked-patch/model.keras"),
}
