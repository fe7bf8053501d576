"""Names of published checkpoints, such as "vit/imagenet21k/ViT-B_16", and their addresses. One row per public folder.

Sources of the names: README.md, vit_jax.ipynb and vit_jax_augreg.ipynb of google-research/vision_transformer,
models/vit.py and configs/proj/flexivit/README.md of google-research/big_vision, README.md and colabs of
google-research/big_transfer.
"""

import difflib
import re
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import quote

from keras_vit.trained import packaged_names

STORAGE = "https://storage.googleapis.com"
FILES = (".keras", ".npz", ".safetensors", ".h5", ".tflite")  # suffixes of local files

# AugReg: file names of "How to train your ViT?" (arXiv 2106.10270), which encode how each of its 52,000 files was
# trained, as in the index of gs://vit_models/augreg (vit_jax_augreg.ipynb of google-research/vision_transformer): the
# settings of pre-training, then, after two dashes, the dataset and settings of fine-tuning. The augmentations light0
# and light1 are the light1 and light2 of the paper's tables.
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


@dataclass(frozen=True)
class Folder:
    """A public folder of checkpoints."""

    prefix: str  # of its names
    path: str  # in Google Cloud Storage, without a trailing slash
    names: tuple[str, ...]  # without the prefix and ".npz"; only the recommended ones of AugReg's 52,000


BIT = ("R50x1", "R50x3", "R101x1", "R101x3", "R152x2", "R152x4")
# SigLIP (arXiv 2303.15343) and SigLIP 2 (arXiv 2502.14786) of one image size, whose files also have a tower of texts.
SIGLIP = (
    *("siglip/webli_en_b16_224_63724782", "siglip/webli_en_b16_256_60500360", "siglip/webli_en_b16_384_68578854"),
    *("siglip/webli_en_b16_512_68580893", "siglip/webli_en_l16_256_60552751", "siglip/webli_en_l16_384_63634585"),
    *("siglip/webli_en_so400m_224_57633886", "siglip/webli_en_so400m_384_58765454"),
    "siglip/webli_i18n_b16_256_66117334",
    *(f"siglip2/siglip2_{model}" for model in ("b32_256", "b16_224", "b16_256", "b16_384", "b16_512")),
    *(f"siglip2/siglip2_{model}" for model in ("l16_256", "l16_384", "l16_512", "so400m14_224", "so400m14_384")),
    *(f"siglip2/siglip2_{model}" for model in ("so400m16_256", "so400m16_384", "so400m16_512")),
    *(f"siglip2/siglip2_{model}" for model in ("g-opt16_256", "g-opt16_384")),
)
FOLDERS = (
    # AugReg (arXiv 2106.10270): ImageNet-21k or ImageNet, at 224 pixels, and fine-tuned at 224 or 384.
    Folder(
        "augreg/",
        "vit_models/augreg",
        recommended_names(),
    ),
    # The paper (arXiv 2010.11929): ImageNet-21k at 224 pixels; their heads are zeros, for fine-tuning.
    Folder(
        "vit/imagenet21k/",
        "vit_models/imagenet21k",
        ("ViT-B_8", "ViT-B_16", "ViT-B_32", "ViT-L_16", "ViT-L_32", "ViT-H_14")
        + ("R26+ViT-B_32", "R50+ViT-B_16", "R50+ViT-L_32"),
    ),
    # The paper: ImageNet-21k, fine-tuned on ImageNet at 384 pixels, or at 224 if the name ends with that.
    Folder(
        "vit/imagenet21k+imagenet2012/",
        "vit_models/imagenet21k+imagenet2012",
        ("ViT-B_8", "ViT-B_16", "ViT-B_16-224", "ViT-B_32", "ViT-L_16", "ViT-L_16-224", "ViT-L_32", "R50+ViT-B_16"),
    ),
    # ImageNet with sharpness-aware minimization (arXiv 2106.01548) at 224 pixels.
    Folder(
        "vit/sam/",
        "vit_models/sam",
        ("ViT-S_16", "ViT-B_16", "ViT-B_32", "ViT-L_16", "ViT-L_32"),
    ),
    # ImageNet with GSAM (arXiv 2203.08065) at 224 pixels: global average pooling, no class token.
    Folder(
        "vit/gsam/",
        "vit_models/gsam",
        ("ViT-S_16", "ViT-S_32", "ViT-B_16", "ViT-B_32"),
    ),
    # Better plain ViT-S/16 (arXiv 2205.01580), FlexiViT and its baselines (arXiv 2212.08013, 240 pixels), converted
    # DeiT-3. The files of FlexiViT have a kernel of 32 x 32 pixels and 7 x 7 positions: see `with_patch_size`.
    Folder(
        "big_vision/",
        "big_vision",
        tuple(f"vit_s16_i1k_{epochs}ep" for epochs in (90, 150, 300))
        + ("flexivit/vit_b16_i21k_300ep", "flexivit/vit_b30_i21k_300ep")
        + tuple(
            f"flexivit/flexivit_{size}_i1k{epochs}" for size in "slb" for epochs in ("", "_600ep", "_300ep", "_90ep")
        )
        + tuple(f"flexivit/flexivit_b_i21k_{epochs}ep" for epochs in (90, 300, 1000))
        + tuple(
            f"zoo/deit3/bv_deit_3_{size}_{pixels}_{data}"
            for size in ("small", "base", "large")
            for pixels in (224, 384)
            for data in ("1k", "21k")
        )
        + SIGLIP,
    ),
    # BiT ResNets (arXiv 1912.11370): S on ImageNet, M on ImageNet-21k, M fine-tuned; distilled (arXiv 2106.05237).
    Folder(
        "bit/",
        "bit_models",
        tuple(f"BiT-{data}-{size}" for data in "SM" for size in BIT)
        + tuple(f"BiT-M-{size}-ILSVRC2012" for size in BIT)
        + ("BiT-M-R50x1-CIFAR10",)
        + tuple(f"distill/{x}" for x in ("R50x1_160", "R50x1_224", "R152x2_T_224", "R152x2_T_384")),
    ),
)
FIRST_FOLDERS = {name.partition("/")[0] + "/" for name in (*packaged_names(), *(folder.prefix for folder in FOLDERS))}


def published_names() -> tuple[str, ...]:
    """All names of the table, in its order; of AugReg only the recommended files, though all can be downloaded."""
    return tuple(folder.prefix + name for folder in FOLDERS for name in folder.names)


def find_folder(name: str) -> Folder | None:
    """The folder of a name, by its prefix; None if there is none."""
    return next((folder for folder in FOLDERS if str(name).startswith(folder.prefix)), None)


def resolve(name: str) -> str | None:
    """The address of a published checkpoint.

    Args:
        name: Such as "augreg/B_16-i21k-300ep-lr_0.001-aug_medium1-wd_0.1-do_0.0-sd_0.0", with or without ".npz". Check
            for a local file first: a folder may have the name of a prefix.

    Returns:
        The https address, or None if no published name starts like this.
    """
    name = str(name).removesuffix(".npz")
    folder = find_folder(name)
    first, slash, _ = name.partition("/")
    if folder is None and first + slash not in FIRST_FOLDERS:
        return None
    stem = name.removeprefix(folder.prefix) if folder else name
    if folder and folder.prefix == "augreg/":
        check_augreg_name(stem)
    elif folder is None or stem not in folder.names:
        near = difflib.get_close_matches(name, (*packaged_names(), *published_names()), n=3, cutoff=0.5)
        raise ValueError(
            f"Unknown published checkpoint {name!r}. "
            + (f"Did you mean one of: {', '.join(near)}? " if near else "")
            + "keras_vit.weights.published_names() lists all names. For another file, download it and pass its path."
        )
    return f"{STORAGE}/{quote(f'{folder.path}/{stem}.npz')}"


def is_published(path) -> bool:
    """Whether a file has the name of a published .npz file. All of these have pixels with mean and deviation 0.5."""
    stem, suffix = Path(path).stem, Path(path).suffix
    if suffix != ".npz":
        return False
    if any(stem == name.rpartition("/")[2] for folder in FOLDERS for name in folder.names):
        return True
    try:
        check_augreg_name(stem)
    except ValueError:
        return False
    return True


def missing_folder(path: str) -> str:
    """A sentence about the folder of a path, if it does not exist; else ""."""
    folder = Path(path).parent
    return "" if folder.is_dir() else f"The folder {folder} does not exist."


def suggestion(name: str) -> str:
    """What to pass for a name that is no file: names of the Hugging Face Hub and of timm have a prefix here."""
    if re.match(r"(vit|deit|deit3)_(tiny|small|medium|base|large|huge)_", name):
        name = name.removesuffix(Path(name).suffix) if name.endswith(FILES) else name
        return f"For weights of timm pass 'hf:timm/{name}' with the tag of their training, see timm.list_pretrained()."
    is_file = name.endswith(FILES)
    if is_file and (missing := missing_folder(name)):
        return missing
    if re.fullmatch(r"[\w.-]+/[\w.-]+", name) and not is_file:
        return f"For the Hugging Face Hub pass 'hf:{name}'."
    if name.startswith("imagenet"):
        return "For ImageNet's 1000 classes pass 'vit/imagenet21k+imagenet2012/ViT-B_16' or another published name."
    near = difflib.get_close_matches(name, (*packaged_names(), *published_names()), n=2, cutoff=0.5)
    if near:
        return f"Did you mean {' or '.join(near)}?"
    return (
        "To load by name, pass 'hf:owner/name' for the Hugging Face Hub, or one of keras_vit.weights.published_names()."
    )
