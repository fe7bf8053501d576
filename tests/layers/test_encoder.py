import numpy as np
import pytest

from keras_vit.layers import AxialBlock, Encoder, LayerNorm

X = np.random.default_rng(0).standard_normal((2, 5, 12)).astype("float32")
SIZE = {"num_heads": 3, "mlp_dim": 24}


def test_encoder_applies_blocks_and_norm():
    encoder = Encoder(3, **SIZE)
    output, attention = encoder(X, return_attention=True)
    x = X
    for number, block in enumerate(encoder.blocks):
        x, weights = block(x, return_attention=True)
        np.testing.assert_allclose(attention[:, number], weights, atol=1e-6)
    np.testing.assert_allclose(output, encoder.norm(x), atol=1e-6)
    np.testing.assert_array_equal(output, encoder(X))


def test_stochastic_depth_grows_linearly_from_zero():
    encoder = Encoder(5, **SIZE, stochastic_depth=0.2)
    rates = [block.drop_mlp.rate for block in encoder.blocks]
    np.testing.assert_allclose(rates, [0, 0.05, 0.1, 0.15, 0.2])
    assert rates == [block.drop_attention.rate for block in encoder.blocks]


def test_stochastic_depth_of_each_block():
    encoder = Encoder(3, **SIZE, stochastic_depth=(0.2, 0.1, 0.2))
    assert [block.drop_mlp.rate for block in Encoder.from_config(encoder.get_config()).blocks] == [0.2, 0.1, 0.2]
    with pytest.raises(ValueError, match=r"a rate for each of the 3 blocks. Received 2 rates: \(0.2, 0.2\)"):
        Encoder(3, **SIZE, stochastic_depth=(0.2, 0.2))


@pytest.mark.slow
def test_dropout_is_independent_and_reproducible():
    first, second = (Encoder(2, **SIZE, dropout=0.3, attention_dropout=0.2, stochastic_depth=0.3, seed=5) for _ in "ab")
    first(X), second(X)
    second.set_weights(first.get_weights())
    once = first(X, training=True)
    np.testing.assert_array_equal(once, second(X, training=True))
    assert not np.array_equal(once, first(X, training=True))
    seeds = [s for block in first.blocks for s in _seeds(block)]
    assert len(seeds) == len(set(seeds)) == 2 * 6


def _seeds(block):
    layers = (block.attention.dropout, block.dropout, block.drop_attention, block.drop_mlp)
    return [*(layer.seed for layer in layers), block.mlp.dropout_hidden.seed, block.mlp.dropout_out.seed]


def test_permutation_equivariance_without_positions():
    encoder = Encoder(2, **SIZE)
    order = [3, 0, 4, 1, 2]
    np.testing.assert_allclose(np.asarray(encoder(X))[:, order], encoder(X[:, order]), atol=1e-5)


def test_blocks_share_the_config():
    encoder = Encoder(
        2, **SIZE, dropout=0.1, attention_dropout=0.2, gelu="erf", epsilon=1e-3, layer_scale=0.1, qk_norm=True
    )
    other = Encoder(2, **SIZE, relative_positions=True)
    for block in encoder.blocks:
        assert block.config is encoder.config and block.attention.query_norm.epsilon == 1e-3
        assert block.scale_mlp.initial == 0.1 and block.mlp.gelu == "erf"
        assert block.dropout.rate == block.mlp.dropout_out.rate == 0.1 and block.attention.dropout.rate == 0.2
    assert all(block.attention.relative for block in other.blocks)


def test_without_final_norm():
    encoder = Encoder(2, **SIZE, final_norm=False)
    np.testing.assert_allclose(encoder(X), encoder.blocks[1](encoder.blocks[0](X)), atol=1e-6)
    assert encoder.norm is None and isinstance(Encoder(2, **SIZE).norm, LayerNorm)


def test_positions_are_added_before_all_blocks_except_the_first():
    encoder = Encoder(3, **SIZE)
    plain = np.asarray(encoder(X))
    calls = []

    ramp = np.linspace(0, 1, X.shape[-1], dtype="float32")  # normalization would remove a constant

    def adding(number):
        return lambda tokens: calls.append(number) or tokens + number * ramp

    output = encoder(X, positions=[adding(1), adding(2)])
    x = encoder.blocks[0](X)
    x = encoder.blocks[1](x + ramp)
    np.testing.assert_allclose(output, encoder.norm(encoder.blocks[2](x + 2 * ramp)), atol=1e-5)
    assert calls == [1, 2] and np.abs(output - plain).max() > 0.1


def test_axial_encoder():
    options = {"dropout": 0.1, "attention_dropout": 0.1, "stochastic_depth": 0.2, "layer_scale": 0.1, "qk_norm": True}
    encoder = Encoder(2, **SIZE, axial_grid=(2, 2), prefix_tokens=1, seed=5, **options)
    output, attention = encoder(X, return_attention=True)
    assert all(isinstance(block, AxialBlock) for block in encoder.blocks)
    assert encoder.blocks[1].prefix_tokens == 1 and encoder.blocks[1].grid == (2, 2)
    assert [block.row.drop_mlp.rate for block in encoder.blocks] == [0, 0.2]
    np.testing.assert_allclose(output, encoder.norm(encoder.blocks[1](encoder.blocks[0](X))), atol=1e-5)
    assert attention.shape == (2, 2, 3, 5, 5)
    np.testing.assert_allclose(np.sum(attention, axis=-1), 1, atol=1e-5)
    seeds = [s for block in encoder.blocks for half in (block.row, block.column) for s in _seeds(half)]
    assert len(seeds) == len(set(seeds)) == 2 * 2 * 6


def test_heads_that_do_not_divide_the_width():
    with pytest.raises(ValueError, match="num_heads=5"):
        Encoder(1, num_heads=5, mlp_dim=24).build((None, 5, 12))
