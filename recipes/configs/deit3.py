"""DeiT III on ImageNet, without a teacher: "DeiT III: Revenge of the ViT" (arXiv 2204.07118).

Command:   keras-vit train deit3-s16 --run.folder gs://my-bucket/runs/deit3-s16
           keras-vit train deit3-b16-192 --run.folder gs://my-bucket/runs/deit3-b16-192
           keras-vit train deit3-b16 --weights gs://my-bucket/runs/deit3-b16-192/model.keras --run.folder ...
Hardware:  TPU v3-8 and up; theirs: 8 GPUs (S/16, B/16) or 32 (L/16), with mixed precision.
Hours:     Core-days of TPU v3, computed as in imagenet.py: S/16 12, B/16 at 192 35, L/16 at 192 120; fine-tuning at 224
           B/16 1.2, L/16 4.1.
Accuracy:  Top-1 of README_revenge.md: S/16 81.4, B/16 83.8, L/16 84.9 at 224 (81.38, 83.80, 84.86 in its logs, before
           the fine-tuning at 224 B/16 83.45 and L/16 84.46). Not yet measured here.

All numbers are those of the commands in README_revenge.md of facebookresearch/deit, else the defaults of its main.py.
"""

from dataclasses import replace

from keras_vit.recipes.configs.deit import DATA, IMAGES
from keras_vit.recipes.configs.imagenet import RUN
from keras_vit.recipes.recipe import Architecture, Augment, Optimizer, Supervised
from keras_vit.variants import parse_variant

BATCH = 2048
FINE_TUNING_BATCH = 512


def _architecture(variant, stochastic_depth):
    """The rate is that of all blocks, where DeiT's grows; the class token has no position (models_v2.py)."""
    return Architecture(
        variant,
        prefix_positions=False,
        initialization="deit",
        gelu="erf",
        layer_scale=1e-4,
        stochastic_depth=(stochastic_depth,) * parse_variant(variant)["depth"],
    )


S16, B16, L16 = _architecture("S/16", 0.05), _architecture("B/16", 0.2), _architecture("L/16", 0.45)

PRETRAINING_DATA = replace(
    DATA,
    batch_size=BATCH,
    augment=Augment(three_augment=True, mixup_alpha=0.8, cutmix_alpha=1.0, repeats=3),
    evaluation_crop=1.0,
)
# Its optimizer is apex's FusedLAMB, which clips gradients at 1.
LAMB = Optimizer(
    name="lamb",
    learning_rate=3e-3,
    decay="cosine",
    warmup_steps=5 * IMAGES // BATCH,
    weight_decay=0.05,
    global_clipnorm=1.0,
)
PRETRAINING = Supervised(
    data=PRETRAINING_DATA,
    optimizer=LAMB,
    run=RUN,
    loss="binary",
    label_smoothing=0.0,
    total_steps=None,
    total_epochs=800,
)
# Its rate is also the least rate of main.py (--min-lr), to which the cosine decays there.
FINE_TUNING = Supervised(
    keep_head=True,
    resample="bicubic",
    data=replace(
        DATA,
        batch_size=FINE_TUNING_BATCH,
        augment=replace(DATA.augment, erasing=0.0, repeats=1),
        evaluation_crop=1.0,
    ),
    optimizer=Optimizer(
        name="adamw",
        learning_rate=1e-5,
        decay="constant",
        warmup_steps=5 * IMAGES // FINE_TUNING_BATCH,
        weight_decay=0.1,
        global_clipnorm=None,
    ),
    run=RUN,
    label_smoothing=0.1,
    total_steps=None,
    total_epochs=20,
)

RECIPES: dict[str, Supervised] = {
    "deit3-s16": replace(PRETRAINING, architecture=S16, optimizer=replace(LAMB, learning_rate=4e-3)),
    **{
        f"deit3-{name}-192": replace(
            PRETRAINING, architecture=architecture, data=replace(PRETRAINING_DATA, image_size=192)
        )
        for name, architecture in (("b16", B16), ("l16", L16))
    },
    **{
        f"deit3-{name}": replace(FINE_TUNING, architecture=architecture, weights=f"runs/deit3-{name}-192/model.keras")
        for name, architecture in (("b16", B16), ("l16", L16))
    },
}
