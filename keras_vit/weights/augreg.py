"""The file names of "How to train your ViT?" (arXiv 2106.10270), which encode how each of its 52,000 files was trained.

As in the index of gs://vit_models/augreg (vit_jax_augreg.ipynb of google-research/vision_transformer): the settings of
pre-training, then, after two dashes, the dataset and settings of fine-tuning. The augmentations light0 and light1 are
the light1 and light2 of the paper's tables.
"""

EXAMPLE = "B_16-i21k-300ep-lr_0.001-aug_medium1-wd_0.1-do_0.0-sd_0.0"
EXAMPLE_TUNED = f"{EXAMPLE}--imagenet2012-steps_20k-lr_0.03-res_384"

# The parts of a name, separated by dashes, and their possible values.
PRE_TRAINING = {
    "model": ("Ti_16", "S_32", "S_16", "B_32", "B_16", "B_8", "L_16", "R_Ti_16", "R26_S_32", "R50_L_32"),
    "dataset": ("i1k", "i21k", "i21k_30"),
    "epochs": ("300ep", "30ep"),
    "learning rate": ("lr_0.001",),
    "augmentation": tuple(f"aug_{x}" for x in ("none", "light0", "light1", "medium1", "medium2", "strong1", "strong2")),
    "weight decay": ("wd_0.03", "wd_0.1"),
    "dropout": ("do_0.0", "do_0.1"),
    "stochastic depth": ("sd_0.0", "sd_0.1"),
}
FINE_TUNING = {
    "dataset": ("imagenet2012", "cifar100", "oxford_iiit_pet", "kitti", "resisc45"),
    "steps": ("steps_0k", "steps_2k", "steps_10k", "steps_20k"),
    "learning rate": ("lr_0.001", "lr_0.003", "lr_0.01", "lr_0.03"),
    "resolution": ("res_224", "res_384"),
}

# The best file of each model by validation accuracy, as recommended by the README of google-research/vision_transformer
# (B_8: by its notebook), then those chosen by timm; with the learning rates and image sizes of fine-tuning on ImageNet.
RECOMMENDED = {
    "Ti_16-i21k-300ep-lr_0.001-aug_none-wd_0.03-do_0.0-sd_0.0": ("lr_0.03-res_224", "lr_0.03-res_384"),
    "S_32-i21k-300ep-lr_0.001-aug_none-wd_0.1-do_0.0-sd_0.0": ("lr_0.01-res_384",),
    "S_16-i21k-300ep-lr_0.001-aug_light1-wd_0.03-do_0.0-sd_0.0": ("lr_0.03-res_224", "lr_0.03-res_384"),
    "B_32-i21k-300ep-lr_0.001-aug_light1-wd_0.1-do_0.0-sd_0.0": ("lr_0.01-res_384", "lr_0.03-res_384"),
    "B_16-i21k-300ep-lr_0.001-aug_medium1-wd_0.1-do_0.0-sd_0.0": (
        "lr_0.01-res_224",
        "lr_0.01-res_384",
        "lr_0.03-res_384",
    ),
    "B_8-i21k-300ep-lr_0.001-aug_medium2-wd_0.1-do_0.0-sd_0.0": ("lr_0.01-res_224", "lr_0.03-res_224"),
    "L_16-i21k-300ep-lr_0.001-aug_strong1-wd_0.1-do_0.0-sd_0.0": ("lr_0.01-res_384",),
    "R_Ti_16-i21k-300ep-lr_0.001-aug_none-wd_0.03-do_0.0-sd_0.0": ("lr_0.03-res_224", "lr_0.03-res_384"),
    "R26_S_32-i21k-300ep-lr_0.001-aug_light1-wd_0.1-do_0.0-sd_0.0": ("lr_0.01-res_384",),
    "R50_L_32-i21k-300ep-lr_0.001-aug_medium1-wd_0.1-do_0.1-sd_0.1": ("lr_0.01-res_224", "lr_0.01-res_384"),
    "S_32-i21k-300ep-lr_0.001-aug_light1-wd_0.03-do_0.0-sd_0.0": ("lr_0.03-res_224", "lr_0.03-res_384"),
    "B_32-i21k-300ep-lr_0.001-aug_medium1-wd_0.03-do_0.0-sd_0.0": ("lr_0.03-res_224",),
    "B_8-i21k-300ep-lr_0.001-aug_medium1-wd_0.1-do_0.0-sd_0.0": ("lr_0.01-res_224",),
    "L_16-i21k-300ep-lr_0.001-aug_medium1-wd_0.1-do_0.1-sd_0.1": ("lr_0.01-res_224", "lr_0.01-res_384"),
    "R26_S_32-i21k-300ep-lr_0.001-aug_light0-wd_0.03-do_0.1-sd_0.1": ("lr_0.03-res_224",),
    "R26_S_32-i21k-300ep-lr_0.001-aug_medium2-wd_0.03-do_0.0-sd_0.0": ("lr_0.03-res_384",),
    "R50_L_32-i21k-300ep-lr_0.001-aug_medium2-wd_0.1-do_0.0-sd_0.0": ("lr_0.01-res_384",),
    "S_16-i1k-300ep-lr_0.001-aug_medium2-wd_0.1-do_0.0-sd_0.0": ("lr_0.01-res_224", "lr_0.01-res_384"),
    "B_32-i1k-300ep-lr_0.001-aug_medium2-wd_0.1-do_0.1-sd_0.1": ("lr_0.01-res_224", "lr_0.01-res_384"),
    "B_16-i1k-300ep-lr_0.001-aug_strong2-wd_0.1-do_0.1-sd_0.1": ("lr_0.01-res_224", "lr_0.01-res_384"),
}


def recommended_names() -> tuple[str, ...]:
    """The names in `RECOMMENDED`, each pre-trained file before its fine-tuned ones."""
    tuned = {name: tuple(f"{name}--imagenet2012-steps_20k-{x}" for x in ends) for name, ends in RECOMMENDED.items()}
    return tuple(full for name, names in tuned.items() for full in (name, *names))


def check_augreg_name(name: str):
    """Raises a ValueError with a valid example unless every part of the name has one of its possible values."""
    halves = name.split("--")
    for half, parts in zip(halves, (PRE_TRAINING, FINE_TUNING)):
        received = half.split("-")
        wrong = next((value for value, values in zip(received, parts.values()) if value not in values), None)
        if len(halves) > 2 or len(received) != len(parts) or wrong:
            names = "-".join(f"<{part}>" for part in parts)
            raise ValueError(
                f"Not the name of an AugReg file: {wrong or half!r} does not fit {names}. Examples: augreg/{EXAMPLE} "
                f"and, fine-tuned, augreg/{EXAMPLE_TUNED}."
            )
