"""Masked autoencoders on ImageNet without labels: MAE (arXiv 2111.06377), appendix A.1 and table 8.

Command:   keras-vit train mae-b16 --run.folder gs://my-bucket/runs/mae-b16
           keras-vit train mae-b16-finetune --weights gs://my-bucket/runs/mae-b16/model.keras --run.folder ...
Hardware:  B/16 fits v5e:2x4 (docs/preflight.md); L/16 was not compiled.
Hours:     Core-days of TPU v3, computed as in imagenet.py, with 49 of 196 patches in the encoder: B/16 25, L/16 54.
Accuracy:  Top-1 on ImageNet after fine-tuning with labels: B/16 83.6, L/16 85.9 after 1,600 epochs (the paper's table
           3); L/16 85.4 after 800 (its table 1d). Not yet measured here; a small model: see cifar10.py.
"""

from dataclasses import replace

from keras_vit.recipes.configs.deit import DATA, DEIT, IMAGES
from keras_vit.recipes.configs.imagenet import RUN
from keras_vit.recipes.recipe import Architecture, Augment, MaskedAutoencoder, Optimizer, Supervised

BATCH = 4096

# The published models have a class token, which pre-training does not use, and average the patches for fine-tuning.
# The paper's appendix A.1 reports similar results without it: then the weights need no change for fine-tuning.
MAE = MaskedAutoencoder(
    architecture=Architecture("B/16", pooling="gap", position_embedding="sincos_2d", initialization="mae", gelu="erf"),
    data=replace(DATA, batch_size=BATCH, min_crop_area=0.2, augment=Augment()),
    optimizer=Optimizer(
        name="adamw",
        learning_rate=1.5e-4 * BATCH / 256,
        decay="cosine",
        warmup_steps=40 * IMAGES // BATCH,
        weight_decay=0.05,
        global_clipnorm=None,
        beta_2=0.95,
    ),
    run=RUN,
    masked_fraction=0.75,
    decoder_depth=8,
    decoder_width=512,
    decoder_heads=16,
    normalize_targets=True,
    total_steps=800 * IMAGES // BATCH,
)


def fine_tuning(name: str, variant: str, base_rate: float, layer_decay: float, stochastic_depth: float, epochs: int):
    """The settings of FINETUNE.md in MAE's code, at batch size 1,024; they differ from DeiT's as listed here."""
    return replace(
        DEIT,
        weights=f"runs/{name}/model.keras",
        architecture=Architecture(variant, stochastic_depth=stochastic_depth),
        data=replace(DATA, augment=replace(DATA.augment, repeats=1)),
        optimizer=replace(DEIT.optimizer, learning_rate=base_rate * DATA.batch_size / 256, layer_decay=layer_decay),
        total_epochs=epochs,
    )


RECIPES: dict[str, MaskedAutoencoder | Supervised] = {
    "mae-b16": MAE,
    "mae-l16": replace(MAE, architecture=replace(MAE.architecture, variant="L/16")),
    "mae-b16-finetune": fine_tuning("mae-b16", "B/16", 5e-4, layer_decay=0.65, stochastic_depth=0.1, epochs=100),
    "mae-l16-finetune": fine_tuning("mae-l16", "L/16", 1e-3, layer_decay=0.75, stochastic_depth=0.2, epochs=50),
}
