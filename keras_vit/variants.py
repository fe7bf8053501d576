"""The published sizes of the Vision Transformer, and the parser of names such as "B/16".

A variant is a row of a table, not a function body. Ti, S: "How to train your ViT?" (arXiv 2106.10270), Table 1. B, L,
H: "An Image is Worth 16x16 Words" (arXiv 2010.11929), Table 1. g, G: "Scaling Vision Transformers" (arXiv 2106.04560),
Table 2.
"""

from dataclasses import dataclass


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

# Size and patch, in pixels, as their authors released or reported them.
PUBLISHED = (
    "Ti/16",
    "S/32",
    "S/16",
    "B/32",
    "B/16",
    "B/8",
    "L/32",
    "L/16",
    "L/14",
    "H/16",
    "H/14",
    "g/14",
    "G/14",
)


def parse_variant(name: str) -> tuple[Size, int]:
    """Returns the size and the patch size in pixels that a name such as "B/16" stands for.

    Any patch size is accepted, published or not: "S/8" is a small model with patches of 8 x 8 pixels.

    Raises:
        ValueError: The name is not a known size, a slash and a positive whole number.
    """
    letter, slash, patch = name.partition("/")
    if letter not in SIZES or not slash or not patch.isdecimal() or int(patch) < 1:
        raise ValueError(
            f"Expected a variant such as 'B/16': one of the sizes {', '.join(SIZES)} (case matters), a slash and the "
            f"patch size in pixels. Received: {name!r}"
        )
    return SIZES[letter], int(patch)
