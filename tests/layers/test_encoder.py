import numpy as np
import pytest

from keras_vit.layers import Encoder

X = np.random.default_rng(0).standard_normal((2, 5, 12)).astype("float32")
SIZE = {"num_heads": 3, "mlp_dim": 24}
NOISE = {"dropout": 0.3, "attention_dropout": 0.2, "stochastic_depth": 0.3, "seed": 5}


def test_stochastic_depth_of_each_block():
    for rates, expected in ((0.2, [0, 0.1, 0.2]), ((0.2, 0.1, 0.2), [0.2, 0.1, 0.2])):
        blocks = Encoder.from_config(Encoder(3, **SIZE, stochastic_depth=rates).get_config()).blocks
        np.testing.assert_allclose([block.drop_mlp.rate for block in blocks], expected)
        np.testing.assert_allclose([block.drop_attention.rate for block in blocks], expected)
    with pytest.raises(ValueError, match="3 blocks. Received 2"):
        Encoder(3, **SIZE, stochastic_depth=(0.2, 0.2))


@pytest.mark.parametrize("axial", [{}, {"axial_grid": (2, 2), "prefix_tokens": 1}], ids=["plain", "axial"])
def test_dropout_is_independent_and_reproducible(axial):
    first, second = (Encoder(2, **SIZE, **NOISE, **axial) for _ in "ab")
    first(X), second(X)
    second.set_weights(first.get_weights())
    once = first(X, training=True)
    np.testing.assert_array_equal(once, second(X, training=True))
    assert not np.array_equal(once, first(X, training=True))
    sites = ("dropout", "drop_attention", "drop_mlp", "dropout_hidden", "dropout_out")
    seeds = [layer.seed for layer in first._flatten_layers() if layer.name in sites]
    assert len(seeds) == len(set(seeds)) == 2 * 6 * (2 if axial else 1) and min(seeds) == 5
