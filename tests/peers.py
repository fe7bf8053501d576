"""Our weights in the layouts of other projects, for tests."""

import numpy as np


def attention_arrays(block) -> dict:
    """A block's attention as in `keras.layers.MultiHeadAttention`: (D, K, d), (K, d) and (K, d, D), (D,)."""
    kernels, biases = (np.split(np.asarray(x), 3, axis=-1) for x in block.attention.qkv.weights)
    out_kernel, out_bias = (np.asarray(x) for x in block.attention.out.weights)
    parts = {
        name: [kernel.reshape(-1, 3, 4), bias.reshape(3, 4)]
        for name, kernel, bias in zip(("query", "key", "value"), kernels, biases)
    }
    return {**parts, "output": [out_kernel.reshape(3, 4, -1), out_bias]}
