"""A recomputed block for a part of the images at a time, in a loop.

The largest tensors of a block are the attention weights and the hidden tokens of the MLP, which the backward pass
requires with their gradients. With `remat="block"` only one block has them at a time, and so for one part of the images
only. What grows with the batch is the input of each block.
"""

from keras import ops

MAX_TOKENS = 2**17  # of a batch that is computed at once: 665 images of 197 tokens
MAX_PART, MIN_PART = 2**16, 2**13  # tokens of a part
SUBLANES = 8  # rows of a tile: the number of images in a part is a multiple
SEED_STEP = 2**20  # between the seeds of parts


def number_of_parts(x) -> int:
    """The smallest number of parts for tokens (B, N, D); 1 if the batch is small, or does not divide well."""
    batch, length = x.shape[:2]
    if batch is None or batch * length <= MAX_TOKENS:
        return 1
    sizes = [batch // parts for parts in range(2, batch + 1) if batch % parts == 0]
    return next((batch // size for size in sizes if size % SUBLANES == 0 and MIN_PART <= size * length <= MAX_PART), 1)


def outputs(function, x, seeds, parts, output_length):
    """function(x, seeds): (B, N, D) -> (B, M, D)."""
    if parts == 1:
        return function(x, seeds)

    def step(i, output):
        return _set_part(output, i, function(_part(x, i, parts), _seeds_of_part(seeds, i)))

    return ops.fori_loop(0, parts, step, ops.zeros_like(x[:, :output_length]))


def gradients(function, x, seeds, upstream, variables, parts):
    """function(x, seeds, upstream, variables): the gradients of x, and of each variable, summed over the images."""
    if parts == 1:
        return function(x, seeds, upstream, variables)

    def step(i, state):
        part, part_upstream = (_part(tensor, i, parts) for tensor in (x, upstream))
        for_x, for_variables = function(part, _seeds_of_part(seeds, i), part_upstream, variables)
        return _set_part(state[0], i, for_x), [total + one for total, one in zip(state[1], for_variables)]

    return ops.fori_loop(0, parts, step, (ops.zeros_like(x), [ops.zeros_like(variable) for variable in variables]))


def _part(x, i, parts):
    """(B, N, D) -> (B / parts, N, D)."""
    size = x.shape[0] // parts
    return ops.slice(x, (i * size, 0, 0), (size, *x.shape[1:]))


def _set_part(x, i, part):
    return ops.slice_update(x, (i * part.shape[0], 0, 0), part)


def _seeds_of_part(seeds, i):
    return [seed + ops.cast(ops.stack([i * SEED_STEP, 0]), seed.dtype) for seed in seeds]
