"""Notes about padding: a TPU's compiler pads the two minor dimensions of a tensor to tiles of 8 x 128."""

import math

LANES, SUBLANES = 128, 8
MIN_REPORTED = 0.1  # fraction of padding


def tiling_notes(model, batch_size: int) -> list[str]:
    """Notes about sizes of a `VisionTransformer` that are padded by a tenth or more, with better sizes.

    Args:
        model: For a model of another class, only the batch size is checked.
        batch_size: Images per device.
    """
    config = getattr(model, "config", None)
    notes = []
    if batch_size % SUBLANES:
        better = max(SUBLANES, round(batch_size / SUBLANES) * SUBLANES)
        notes.append(f"{batch_size} images per device is not a multiple of {SUBLANES}; use {better}.")
    if config is None or not hasattr(config, "mlp_dim"):
        return notes
    for name in ("width", "mlp_dim"):
        size = getattr(config, name)
        if padding_fraction(size) >= MIN_REPORTED:
            notes.append(f"{name} {size} wastes {padding_fraction(size):.0%} on padding; use {padded(size)}.")
    notes += _token_notes(model)
    head = config.width // config.num_heads
    if padding_fraction(head) >= MIN_REPORTED:
        notes.append(f"Heads of width {head} leave {padding_fraction(head):.0%} of the matrix unit idle in attention.")
    return notes


def padding_fraction(size: int) -> float:
    """Fraction of the padded dimension that is padding."""
    return 1.0 - size / padded(size)


def padded(size: int) -> int:
    """The next multiple of 128."""
    return -(-size // LANES) * LANES


def _token_notes(model):
    """The number of tokens is the minor dimension of the attention weights. Only square images are checked."""
    tokens = model.prefix_tokens + math.prod(model.grid)
    wasted = padding_fraction(tokens)
    if wasted < MIN_REPORTED or model.grid[0] != model.grid[1]:
        return []
    patch, grid = model.patch_size[0], model.grid[0]
    near = range(max(1, grid - max(2, grid // 4)), grid + max(2, grid // 4) + 1)
    found = {side * patch: padding_fraction(model.prefix_tokens + side * side) for side in near}
    best = sorted(found, key=lambda pixels: (found[pixels] > MIN_REPORTED, abs(pixels - grid * patch)))[:2]
    better = [f"{pixels} px: {found[pixels]:.0%}" for pixels in best if found[pixels] < wasted]
    ending = f" Nearby image sizes: {', '.join(better)}." if better else ""
    return [f"{tokens} tokens waste {wasted:.0%} of the attention weights on padding.{ending}"]
