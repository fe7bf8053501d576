"""Augmentation and regularization for ViT by model and data: "How to train your ViT?" (arXiv 2106.10270).

Command:   keras-vit train augreg-i1k-b16 --run.folder gs://my-bucket/runs/b16
           keras-vit train augreg-i1k-s16-strong1 --optimizer.weight-decay 0.03 --architecture.dropout 0.1 \\
               --architecture.stochastic-depth 0.1
           keras-vit train augreg-i21k-b16-best --data.dataset tfrecord:gs://my-bucket/imagenet21k
           keras-vit train augreg-i21k-b16-medium1 --total-epochs 30 --data.dataset ...
Names:     augreg-<i1k or i21k>-<model>-<regime> is the paper's grid, with weight decay 0.1 and neither dropout nor
           stochastic depth. The 28 settings of a model are 7 regimes x weight decay 0.1 or 0.03 x both rates 0 or 0.1.
           Without a regime: that of big_vision's configuration (vit_i1k.py, vit_i21k.py). With "-best": the settings of
           the published weights that the authors recommend.
Hardware:  TPU v3-8 and up.
Hours:     Core-days of TPU v3, computed as in imagenet.py: ImageNet, 300 epochs: Ti/16 1.3, S/32 1.1, S/16 4.6,
           B/32 4.4, B/16 18, L/16 62; ImageNet-21k, 300 epochs: 11 times as much; 30 epochs: a tenth of that.
Accuracy:  On ImageNet. i1k: B/16 about 79 (big_vision issue 7); the best of each grid at 224: Ti/16 72.59, S/32 72.07,
           S/16 79.00, B/32 74.42, B/16 79.84, L/16 75.72, R+Ti/16 70.13, R26+S/32 79.61, R50+L/32 76.84. i21k "-best",
           fine-tuned at 384: Ti/16 78.22, S/32 79.58, S/16 83.73, B/32 83.59, B/16 85.49, L/16 85.59, R+Ti/16 75.40,
           R26+S/32 83.85, R50+L/32 85.99 (both: Table 3 and README of google-research/vision_transformer).
           Not yet measured here.
"""

from dataclasses import replace

from keras_vit.recipes.configs.imagenet import IMAGENET, IMAGENET21K, RUN
from keras_vit.recipes.recipe import Architecture, Augment, Optimizer, Supervised

# Two RandAugment operations of a magnitude, and mixup. light1 is not "none": with magnitude 0 an image may still be
# inverted or equalized. The paper's figures call the last two heavy1 and heavy2.
REGIMES = {
    "none": Augment(),
    "light1": Augment(randaugment_layers=2, randaugment_magnitude=0, mixup_alpha=0.0),
    "light2": Augment(randaugment_layers=2, randaugment_magnitude=10, mixup_alpha=0.2),
    "medium1": Augment(randaugment_layers=2, randaugment_magnitude=15, mixup_alpha=0.2),
    "medium2": Augment(randaugment_layers=2, randaugment_magnitude=15, mixup_alpha=0.5),
    "strong1": Augment(randaugment_layers=2, randaugment_magnitude=20, mixup_alpha=0.5),
    "strong2": Augment(randaugment_layers=2, randaugment_magnitude=20, mixup_alpha=0.8),
}
MODELS = {
    "ti16": "Ti/16",
    "s32": "S/32",
    "s16": "S/16",
    "b32": "B/32",
    "b16": "B/16",
    "l16": "L/16",
    "r-ti16": "R+Ti/16",
    "r26-s32": "R26+S/32",
    "r50-l32": "R50+L/32",
}
# Data, and initial bias of the head (big_vision). The shuffle buffer is big_vision's: 27 GB of encoded images.
DATA = {
    "i1k": (replace(IMAGENET, shuffle_images=250_000), -6.9),
    "i21k": (replace(IMAGENET21K.data, shuffle_images=250_000), -10.0),
}
BIG_VISION = {
    "i1k": {
        "ti16": "light1",
        "s32": "medium1",
        "s16": "medium2",
        "b32": "medium2",
        "b16": "medium2",
        "l16": "medium2",
    },
    "i21k": {"ti16": "none", "s32": "none", "s16": "light1", "b32": "light2", "b16": "light2", "l16": "medium2"},
}
# Regime, weight decay, and rate of dropout and stochastic depth. Files named aug_light1 were trained with light2.
BEST = {
    "ti16": ("none", 0.03, 0.0),
    "s32": ("none", 0.1, 0.0),
    "s16": ("light2", 0.03, 0.0),
    "b32": ("light2", 0.1, 0.0),
    "b16": ("medium1", 0.1, 0.0),
    "l16": ("strong1", 0.1, 0.0),
    "r-ti16": ("none", 0.03, 0.0),
    "r26-s32": ("light2", 0.1, 0.0),
    "r50-l32": ("medium1", 0.1, 0.1),
}


def augreg(data: str, model: str, regime: str, weight_decay: float = 0.1, rate: float = 0.0) -> Supervised:
    """One point of the grid; `rate` is the rate of dropout and of stochastic depth."""
    images, head_bias = DATA[data]
    return Supervised(
        # Class token and linear head, as in the paper and the published files. big_vision's configurations add a
        # hidden layer (vit_i1k.py) or use global average pooling (vit_i21k.py).
        architecture=Architecture(MODELS[model], dropout=rate, stochastic_depth=rate),
        data=replace(images, augment=REGIMES[regime]),
        optimizer=Optimizer(
            name="adamw", learning_rate=1e-3, decay="cosine", warmup_steps=10_000, weight_decay=weight_decay
        ),
        run=RUN,
        loss="sigmoid",
        head_bias=head_bias,
        total_steps=None,
        total_epochs=300,
    )


RECIPES = {
    **{
        f"augreg-{data}-{model}-{regime}": augreg(data, model, regime)
        for data in DATA
        for model in MODELS
        for regime in REGIMES
    },
    **{
        f"augreg-{data}-{model}": augreg(data, model, regime)
        for data, regimes in BIG_VISION.items()
        for model, regime in regimes.items()
    },
    **{f"augreg-i21k-{model}-best": augreg("i21k", model, *settings) for model, settings in BEST.items()},
}
