"""The published sizes of the Vision Transformer, and the parser of names such as "B/16".

Ti, S: "How to train your ViT?" (arXiv 2106.10270), Table 1. B, L,
H: "An Image is Worth 16x16 Words" (arXiv 2010.11929), Table 1. g, G: "Scaling Vision Transformers" (arXiv 2106.04560),
Table 2.
"""

import re
from dataclasses import asdict, dataclass

from keras_vit.images import as_size

# Units in each stage of a hybrid's ResNet (section 3.1; "R26" and "R": google-research/vision_transformer,
# configs/models.py). "R" is the root alone: its name says 16, but its patches are 8 x 8 at a stride of 4.
RESNETS = {
    ("R50", 32): (3, 4, 6, 3),
    ("R50", 16): (3, 4, 9),
    ("R26", 32): (2, 2, 2, 2),
    ("R", 16): (),
    ("R6", 4): (1, 1),
}
ROOT_STRIDE = 4  # of the convolution and the pooling before the stages of a ResNet
SMALL_IMAGES = "R6"  # not published: the ResNet of form "cifar"


@dataclass(frozen=True)
class Size:
    """The shape of an encoder: number of blocks, token width, hidden width of the MLP, attention heads."""

    depth: int
    width: int
    mlp_dim: int
    num_heads: int


SIZES = {
    "Ti": Size(depth=12, width=192, mlp_dim=768, num_heads=3),
    "S": Size(depth=12, width=384, mlp_dim=1536, num_heads=6),
    "B": Size(depth=12, width=768, mlp_dim=3072, num_heads=12),
    "L": Size(depth=24, width=1024, mlp_dim=4096, num_heads=16),
    "H": Size(depth=32, width=1280, mlp_dim=5120, num_heads=16),
    "g": Size(depth=40, width=1408, mlp_dim=6144, num_heads=16),
    "G": Size(depth=48, width=1664, mlp_dim=8192, num_heads=16),
}

TIMM_SIZES = dict(zip(("tiny", "small", "base", "large", "huge", "giant", "gigantic"), SIZES))
HYBRIDS = ("R+Ti/16", "R26+S/32", "R26+B/32", "R50+B/16", "R50+B/32", "R50+L/16", "R50+L/32")


def parse_variant(name: str) -> dict:
    """The arguments of `VisionTransformer` for a name such as "B/16" or "R50+B/16".

    Any patch size is accepted for a plain model, published or not: "S/8" is a small model with patches of 8 x 8 pixels.

    Raises:
        ValueError: The name is not a known size, a slash and a positive integer, optionally after a known ResNet and
            a plus.
    """
    timm = re.match(r"vit_([a-z]+)_patch(\d+)_(\d+)", name)
    if timm and timm[1] in TIMM_SIZES:
        variant = f"{TIMM_SIZES[timm[1]]}/{timm[2]}"
        raise ValueError(
            f"{name} is a name of timm. Use keras_vit.ViT({variant!r}, image_size={timm[3]}), or, with its weights, "
            f"keras_vit.load('hf:timm/{name if '.' in name else name + '.augreg_in21k'}')."
        )
    resnet, plus, plain = name.rpartition("+")
    letter, slash, patch = plain.partition("/")
    if letter not in SIZES or not slash or not patch.isdecimal() or int(patch) < 1:
        raise ValueError(
            f"Expected a variant such as 'B/16': one of the sizes {', '.join(SIZES)} (case matters), a slash and the "
            f"patch size in pixels; or a hybrid such as {', '.join(HYBRIDS)}. Received: {name!r}"
        )
    shape = {"patch_size": int(patch), **asdict(SIZES[letter])}
    if not plus:
        return shape
    if (resnet, int(patch)) not in RESNETS:
        hybrids = ", ".join(f"{one}+{letter}/{side}" for one, side in RESNETS)
        raise ValueError(f"Expected one of the hybrids {hybrids}. Received: {name!r}")
    stages = RESNETS[resnet, int(patch)]
    form = {"resnet_form": "cifar"} if resnet == SMALL_IMAGES else {}
    return shape | form | {"resnet_stages": stages, "patch_size": int(patch) if stages else 32}


# Stages and width factor of the ResNets that the paper compares with (its table 6).
BIT_SIZES = {
    "R50x1": ((3, 4, 6, 3), 1),
    "R50x2": ((3, 4, 6, 3), 2),
    "R50x3": ((3, 4, 6, 3), 3),
    "R101x1": ((3, 4, 23, 3), 1),
    "R101x3": ((3, 4, 23, 3), 3),
    "R152x1": ((3, 8, 36, 3), 1),
    "R152x2": ((3, 8, 36, 3), 2),
    "R152x4": ((3, 8, 36, 3), 4),
    "R200x3": ((3, 24, 36, 3), 3),
}


def variant_name(arguments: dict) -> str | None:
    """The name of the variant with these arguments, such as "B/16" or "R50x1"; None if it has no name.

    Axial models have no name, although they have the sizes of variants.
    """
    if arguments.get("axial") or {"stages", "num_heads"} <= arguments.keys():
        return None
    if "stages" in arguments:
        shape = (tuple(arguments["stages"]), arguments["width_factor"])
        return next((name for name, known in BIT_SIZES.items() if known == shape), None)
    if "patch_size" not in arguments:
        return None
    small_images = arguments.get("resnet_form") == "cifar"
    for letter in SIZES:
        hybrids = (
            [f"{SMALL_IMAGES}+{letter}/4"] if small_images else [name for name in HYBRIDS if f"+{letter}/" in name]
        )
        for name in (f"{letter}/{arguments['patch_size'][0]}", *hybrids):
            expected = {"resnet_stages": None, **parse_variant(name)}
            expected["patch_size"] = as_size(expected["patch_size"])
            if all(arguments.get(key) == value for key, value in expected.items()):
                return name
    return None
