import numpy as np
import pytest
from randomize import randomize

from keras_vit.layers.axial import AxialAttention

H, W, C, K = 5, 3, 64, 4
MAPS = np.random.default_rng(0).standard_normal((2, H, W, C)).astype("float32")


def random_layer(axis):
    layer = AxialAttention(axis, K)
    layer.build((None, H, W, C))
    return randomize(layer, 0.3)


def numpy_group_norm(layer, line):
    """One line (L, C): each of 32 groups of neighboring channels, over the whole line."""
    groups = np.split(line, 32, axis=-1)
    line = np.concatenate([(g - g.mean()) / np.sqrt(g.var() + 1e-4) for g in groups], axis=-1)
    gamma, beta = layer.get_weights()
    return line * gamma + beta


def numpy_line(layer, line):
    """Equation 4 of arXiv 2003.07853 for one line (L, C), place by place and head by head, in float64."""
    d = C // K
    qkv = numpy_group_norm(layer.norm_qkv, np.asarray(line, "float64") @ layer.qkv.get_weights()[0])
    table = np.asarray(layer.relative, "float64")
    places = range(len(line))
    output = np.zeros(line.shape)
    for head in range(K):
        query, key, value = np.split(qkv[:, head * 2 * d : (head + 1) * 2 * d], (d // 2, d), axis=-1)
        for o in places:
            relative = [np.split(table[p - o + len(line) - 1], (d // 2, d)) for p in places]
            logits = [query[o] @ key[p] + query[o] @ relative[p][0] + key[p] @ relative[p][1] for p in places]
            weights = np.exp(logits) / np.exp(logits).sum()
            output[o, head * d : (head + 1) * d] = sum(weights[p] * (value[p] + relative[p][2]) for p in places)
    return numpy_group_norm(layer.norm_out, output)


@pytest.mark.parametrize("axis", ["height", "width"])
def test_equals_the_equation_line_by_line(axis):
    layer = random_layer(axis)
    maps, found = MAPS, np.asarray(layer(MAPS))
    if axis == "height":
        maps, found = maps.swapaxes(1, 2), found.swapaxes(1, 2)
    for line, result in zip(maps.reshape(-1, *maps.shape[2:]), found.reshape(-1, *maps.shape[2:])):
        np.testing.assert_allclose(result, numpy_line(layer, line), atol=2e-4)


def test_initial_values_are_those_of_scenic():
    layer = AxialAttention("height", 8)
    layer.build((None, 56, 56, 128))
    np.testing.assert_allclose(np.std(layer.qkv.kernel), 1 / 128, rtol=0.03)
    np.testing.assert_allclose(np.std(layer.relative), 1 / 16, rtol=0.05)
    assert layer.relative.shape == (2 * 56 - 1, 2 * 128 // 8)


@pytest.mark.parametrize(
    "axis,heads,shape,message",
    [
        ("depth", K, (None, H, W, C), "Received: 'depth'"),
        ("height", K, (None, None, W, C), "known"),
        ("width", K, (None, None, W, C), "known"),
        ("height", K, (None, H, W, 48), "48 channels, num_heads=4. Use a multiple of 32"),
        ("width", 5, MAPS.shape, "64 channels, num_heads=5. Use a multiple of 160"),
    ],
)
def test_bad_input(axis, heads, shape, message):
    with pytest.raises(ValueError, match=message):
        AxialAttention(axis, heads).build(shape)
