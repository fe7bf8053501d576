"""How much of a TPU's work is spent on padding: the compiler fills tensors up to tiles of 8 x 128."""

import math

LANES, SUBLANES = 128, 8
WORTH_SAYING = 0.1


def tiling_notes(model, batch: int) -> list[str]:
    """Sentences about sizes of a `VisionTransformer` that waste a tenth or more of their tiles, with better ones.

    Args:
        model: Others than ours have no notes.
        batch: Images a device.
    """
    arguments = getattr(model, "arguments", {})
    notes = []
    if batch % SUBLANES:
        better = max(SUBLANES, round(batch / SUBLANES) * SUBLANES)
        notes.append(f"{batch} images a device are no multiple of {SUBLANES}; {better} would be.")
    if "width" not in arguments:
        return notes
    for name in ("width", "mlp_dim"):
        size = arguments[name]
        if waste(size) >= WORTH_SAYING:
            notes.append(f"{name} {size} wastes {waste(size):.0%} of its tiles of {LANES}; {filled(size)} would not.")
    notes += _tokens(model)
    head = arguments["width"] // arguments["num_heads"]
    if waste(head) >= WORTH_SAYING:
        notes.append(f"Heads of width {head} leave {waste(head):.0%} of the matrix unit idle in attention.")
    return notes


def waste(size: int) -> float:
    """Share of the tiles' lanes that a dimension of this size leaves empty."""
    return 1.0 - size / filled(size)


def filled(size: int) -> int:
    """The next multiple of 128."""
    return -(-size // LANES) * LANES


def _tokens(model):
    """A square image's number of tokens is the last dimension of the attention weights."""
    tokens = model.prefix_tokens + math.prod(model.grid)
    if waste(tokens) < WORTH_SAYING or model.grid[0] != model.grid[1]:
        return []
    patch, grid = model.patch_size[0], model.grid[0]
    near = range(max(1, grid - max(2, grid // 4)), grid + max(2, grid // 4) + 1)
    found = {side * patch: waste(model.prefix_tokens + side * side) for side in near}
    better = sorted(found, key=lambda pixels: (found[pixels] > WORTH_SAYING, abs(pixels - grid * patch)))[:2]
    better = [f"{pixels} px: {found[pixels]:.0%}" for pixels in better if found[pixels] < waste(tokens)]
    ending = f" Near sizes: {', '.join(better)}." if better else ""
    return [f"{tokens} tokens waste {waste(tokens):.0%} of the attention weights' tiles.{ending}"]
