"""What published files call the weights of a ResNet, in a hybrid and in BiT.

Four forms of names: "v1" of google-research/vision_transformer (hybrids) and big_vision's models/bit.py, "timm" of
timm's hybrids, "paper" of big_vision's models/bit_paper.py, and "bit_models" of the files at gs://bit_models, which
google-research/big_transfer reads: a unit's normalization and convolution make its parts a, b and c.
"""

import re

ROOTS_AND_HEADS = {
    "timm": {"root/conv_root": "stem.conv", "root/gn_root": "stem.norm"},
    "v1": {"root/conv_root": "conv_root", "root/gn_root": "gn_root", "head": "head"},
    "paper": {"root/conv_root": "root_block/conv_root", "norm": "norm-pre-head", "head": "head"},
    "bit_models": {
        "root/conv_root": "resnet/root_block/standardized_conv2d",
        "norm": "resnet/group_norm",
        "head": "resnet/head/conv2d",
    },
}
SHARED_PARTS = {part: part for part in ("conv1", "gn1", "conv2", "gn2", "conv3", "gn3", "conv_proj")}
UNIT_PARTS = {
    "timm": {
        **{f"conv{i}": f"conv{i}" for i in (1, 2, 3)},
        **{f"gn{i}": f"norm{i}" for i in (1, 2, 3)},
        "conv_proj": "downsample.conv",
        "gn_proj": "downsample.norm",
    },
    "v1": {**SHARED_PARTS, "gn_proj": "gn_proj"},
    "paper": SHARED_PARTS,
    "bit_models": {
        "conv1": "a/standardized_conv2d",
        "gn1": "a/group_norm",
        "conv2": "b/standardized_conv2d",
        "gn2": "b/group_norm",
        "conv3": "c/standardized_conv2d",
        "gn3": "c/group_norm",
        "conv_proj": "a/proj/standardized_conv2d",
    },
}
FLAX_LEAVES = {"gamma": "scale", "beta": "bias"}


def resnet_source_name(name: str, form: str) -> str:
    """The file's name for a weight of a ResNet.

    Args:
        name: The weight's path inside a hybrid or a BiT, such as "backbone/block1/unit2/gn3/gamma"; see
            `keras_vit.weights.transfer.named_weights`.
        form: "v1", "timm", "paper" or "bit_models".

    Raises:
        ValueError: An unknown form, or one that has no such weight.
    """
    if form not in ROOTS_AND_HEADS:
        raise ValueError(f"`form` must be one of {', '.join(ROOTS_AND_HEADS)}. Received: {form!r}")
    part, _, leaf = name.removeprefix("backbone/").rpartition("/")
    unit = re.fullmatch(r"block(\d+)/unit(\d+)/(\w+)", part)
    source = UNIT_PARTS[form].get(unit[3]) if unit else ROOTS_AND_HEADS[form].get(part)
    if source is None:
        raise ValueError(f"A ResNet of the form {form!r} has no weight {name}.")
    if form == "timm":
        place = f"stages.{int(unit[1]) - 1}.blocks.{int(unit[2]) - 1}." if unit else ""
        return f"patch_embed.backbone.{place}{source}.{'bias' if leaf == 'beta' else 'weight'}"
    if unit:
        number = unit[2] if form == "v1" else f"{int(unit[2]):02d}"
        source = f"{'resnet/' if form == 'bit_models' else ''}block{unit[1]}/unit{number}/{source}"
    return f"{source}/{leaf if form == 'bit_models' else FLAX_LEAVES.get(leaf, leaf)}"


def without_counter(name: str) -> str:
    """A file's name without the number that some files of gs://bit_models have in it: standardized_conv2d_17."""
    return re.sub(r"/standardized_conv2d_\d+/", "/standardized_conv2d/", name)
