"""Masked-patch pre-training of ViT-B/16 without labels: the paper's section 4.6 and appendix B.1.2.

Command:   keras-vit train masked-patch-b16 --data.dataset tfrecord:gs://my-bucket/images --run.folder gs://.../masked
           keras-vit train finetune-imagenet --weights gs://.../masked/model.keras
Hardware:  TPU v3-8 and up: fits v3:2x2, v5e:2x4 and v6e:2x2 (docs/preflight.md).
Hours:     Core-days of TPU v3, computed as in imagenet.py: 1,000,000 steps 188, 100,000 steps 19. The paper saw little
           gain beyond 100,000: --total-steps 100000.
Accuracy:  79.9 % on ImageNet after fine-tuning: 2 percentage points more than from scratch, 4 less than with labels
           (the paper; its fine-tuning settings are not reported). Mean colors were the best target in few-shot
           evaluation; pixels were slightly worse, as were 15 % of corrupted patches. Not yet measured here; on
           CIFAR-10: see cifar10.py.
"""

from dataclasses import replace

from keras_vit.recipes.configs.imagenet import IMAGENET, RUN
from keras_vit.recipes.configs.jft import JFT
from keras_vit.recipes.recipe import Architecture, MaskedPatch, Optimizer

# The paper reports no weight decay, dropout or clipping for these runs. We use neither weight decay nor dropout, and
# the clipping of its ImageNet runs. Flips and Inception crops as with labels (issue 103 of the authors' code).
MASKED_PATCH = MaskedPatch(
    architecture=Architecture("B/16"),
    data=JFT.data,
    optimizer=Optimizer(name="adam", learning_rate=2e-4, decay="cosine", warmup_steps=10_000, global_clipnorm=1.0),
    run=RUN,
    target="mean_color",
    corrupted_fraction=0.5,
    masked_fraction=0.8,
    replaced_fraction=0.1,
    total_steps=1_000_000,
)
RECIPES = {
    "masked-patch-b16": MASKED_PATCH,
    "masked-patch-b16-downsampled": replace(MASKED_PATCH, target="downsampled_color"),
    "masked-patch-b16-pixels": replace(MASKED_PATCH, target="pixels"),
    "masked-patch-b16-corrupt15": replace(MASKED_PATCH, corrupted_fraction=0.15),
    # The paper found similar gains on ImageNet; the number of steps is not reported.
    "masked-patch-imagenet-b16": replace(MASKED_PATCH, data=IMAGENET, total_steps=100_000),
}
