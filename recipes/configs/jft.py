"""Supervised pre-training on JFT-300M, or on your own large dataset: the JFT rows of the paper's Table 3.

Command:   keras-vit train jft-l16 --data.dataset tfrecord:gs://my-bucket/images --run.folder gs://my-bucket/runs/l16
Hardware:  TPU v3 pods: the paper's largest took 2,500 core-days.
Hours:     Core-days of TPU v3: H/14 2,500, L/16 with 14 epochs 680 (Table 2). The others are computed from the
           exaFLOPs of Table 6 at the speed of that L/16 (2.3 per core-day): B/32 24, B/16 97, L/32 85, L/16 340,
           R50x1 22, R50x2 86, R101x1 42, R152x1 61, R152x2 244, R50+B/32 46, R50+B/16 119, R50+L/32 107,
           R50+L/16 363 (14 epochs: 725).
Accuracy:  Fine-tuned on ImageNet at 384 (Table 6): B/32 80.73, B/16 84.15, L/32 84.37, L/16 86.30 (14 epochs: 87.12),
           H/14 88.08, R50x1 77.54, R50x2 82.12, R101x1 80.67, R152x1 81.88, R152x2 84.97, R50+B/32 84.90,
           R50+B/16 85.58, R50+L/32 85.68, R50+L/16 86.60 (14 epochs: 87.12). On your own data: not measured.
"""

from dataclasses import replace

from keras_vit.recipes.configs.imagenet import RUN
from keras_vit.recipes.recipe import Architecture, Data, Optimizer, Supervised
from keras_vit.variants import parse_variant

# 18,291 classes, several of which may be correct: sigmoid loss. No clipping is reported for JFT; dropout was not used.
JFT = Supervised(
    data=Data(
        dataset="tfrecord:gs://your-bucket/jft",
        train_split="train",
        validation_split="validation",
        test_split="validation",
        image_size=224,
        batch_size=4096,
        evaluation_resize="shortest_area",
        evaluation_crop=224 / 256,
    ),
    run=RUN,
    loss="sigmoid",
    head_bias=-10.0,
    total_steps=None,
)

# Name, variant, epochs, peak learning rate. Not included: R200x3, and R152x2 with 14 epochs, of Table 6.
TABLE_3 = (
    ("b32", "B/32", 7, 8e-4),
    ("b16", "B/16", 7, 8e-4),
    ("l32", "L/32", 7, 6e-4),
    ("l16", "L/16", 7, 4e-4),
    ("l16-14ep", "L/16", 14, 4e-4),
    ("h14", "H/14", 14, 3e-4),
    ("r50x1", "BiT-R50x1", 7, 1e-3),
    ("r101x1", "BiT-R101x1", 7, 8e-4),
    ("r152x1", "BiT-R152x1", 7, 6e-4),
    ("r50x2", "BiT-R50x2", 7, 1e-3),
    ("r152x2", "BiT-R152x2", 7, 6e-4),
    ("r50-b32", "R50+B/32", 7, 8e-4),
    ("r50-b16", "R50+B/16", 7, 8e-4),
    ("r50-l32", "R50+L/32", 7, 2e-4),
    ("r50-l16", "R50+L/16", 7, 4e-4),
    ("r50-l16-14ep", "R50+L/16", 14, 4e-4),
)


def _architecture(variant):
    """The ViTs have a hidden layer in the head, as wide as the model (section 3.1); the BiTs have none."""
    is_bit = variant.startswith("BiT")
    return Architecture(variant, representation_size=None if is_bit else parse_variant(variant)["width"])


RECIPES = {
    f"jft-{name}": replace(
        JFT,
        architecture=_architecture(variant),
        optimizer=Optimizer(
            name="adamw",
            learning_rate=rate,
            decay="linear",
            warmup_steps=10_000,
            weight_decay=0.1,
            global_clipnorm=None,
        ),
        total_epochs=epochs,
    )
    for name, variant, epochs, rate in TABLE_3
}
