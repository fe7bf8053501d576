"""Which arguments of a VisionTransformer go together, and what those left out become."""

from keras_vit.images import as_size
from keras_vit.integers import is_whole, plain
from keras_vit.layers.pooling import POOLINGS
from keras_vit.preprocessing import Preprocessing

NAMES = {
    "pooling": POOLINGS,
    "position_embedding": ("learned_1d", "learned_2d", "relative", "sincos_2d", "none"),
    "position_placement": ("stem", "every_layer", "shared"),
    "resnet_form": ("v1", "timm"),  # the "paper"'s map wants a normalization that only BiT adds
}


def complete_arguments(given: dict) -> dict:
    """The arguments as a config: sizes are pairs, integers Python's, and what depends on the others is filled in.

    Raises:
        ValueError: A name that does not exist, or arguments that exclude each other.
    """
    if given["class_token"] is None:
        given = given | {"class_token": given["pooling"] in ("token", "none")}
    check_arguments(given)
    given = plain(given)
    stages, size = given["resnet_stages"], as_size(given["image_size"])
    return given | {
        "image_size": size,
        "patch_size": as_size(given["patch_size"], "patch_size"),
        "resnet_stages": None if stages is None else tuple(stages),
        "preprocessing": Preprocessing.made(given["preprocessing"], size).get_config(),
    }


def check_arguments(given: dict):
    """Raises a ValueError for names that do not exist and for arguments that exclude each other."""
    for name, known in NAMES.items():
        if given[name] not in known:
            raise ValueError(f"`{name}` must be one of {', '.join(known)}. Received: {given[name]!r}")
    if not is_whole(given["depth"]):
        raise ValueError(f"`depth` must be a positive integer of blocks. Received: {given['depth']!r}")
    registers = given["register_tokens"]
    if not is_whole(registers, least=0):
        raise ValueError(f"`register_tokens` must be an integer, 0 for none. Received: {registers!r}")
    kind, placement, pooling = given["position_embedding"], given["position_placement"], given["pooling"]
    exclusions = (
        (
            pooling == "token" and not given["class_token"],
            "pooling='token' reads the class token: leave class_token out.",
        ),
        (given["distillation"] and pooling != "token", "distillation=True reads two tokens: use pooling='token'."),
        (
            given["distillation"] and (given["representation_size"] or given["norm_after_pooling"]),
            "distillation=True has two linear heads: leave out representation_size and norm_after_pooling.",
        ),
        (
            given["norm_after_pooling"] and pooling == "none",
            "norm_after_pooling=True needs a pooling other than 'none'.",
        ),
        (
            kind in ("none", "relative") and placement != "stem",
            f"position_embedding={kind!r} adds nothing to the tokens: leave position_placement at 'stem'.",
        ),
        (
            placement != "stem" and not given["prefix_positions"],
            f"position_placement={placement!r} adds positions to all tokens: leave prefix_positions at True.",
        ),
        (
            kind == "relative" and given["axial"],
            "axial=True attends along rows and columns, whose positions position_embedding='relative' does not know: "
            "use another kind.",
        ),
    )
    for excluded, remedy in exclusions:
        if excluded:
            raise ValueError(f"These arguments exclude each other. {remedy}")
