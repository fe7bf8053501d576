import numpy as np
import pytest

from keras_vit.layers import Encoder, EncoderBlock

X = np.random.default_rng(0).standard_normal((2, 5, 12)).astype("float32")


def test_block_is_pre_norm_with_two_residuals():
    block = EncoderBlock(3, 24)
    output = block(X)
    after_attention = X + np.asarray(block.attention(block.norm_attention(X)))
    expected = after_attention + np.asarray(block.mlp(block.norm_mlp(after_attention)))
    np.testing.assert_allclose(output, expected, atol=1e-6)


def test_encoder_is_its_blocks_and_a_norm():
    encoder = Encoder(3, 3, 24)
    output, attention = encoder(X, return_attention=True)
    x = X
    for number, block in enumerate(encoder.blocks):
        x, weights = block(x, return_attention=True)
        np.testing.assert_allclose(attention[:, number], weights, atol=1e-6)
    np.testing.assert_allclose(output, encoder.norm(x), atol=1e-6)
    np.testing.assert_array_equal(output, encoder(X))


def test_stochastic_depth_grows_linearly_from_zero():
    encoder = Encoder(5, 3, 24, stochastic_depth=0.2)
    rates = [block.drop_mlp.rate for block in encoder.blocks]
    np.testing.assert_allclose(rates, [0, 0.05, 0.1, 0.15, 0.2])
    assert rates == [block.drop_attention.rate for block in encoder.blocks]


def test_dropout_sites_draw_independently_and_repeat_with_a_seed():
    first, second = (Encoder(2, 3, 24, dropout=0.3, attention_dropout=0.2, stochastic_depth=0.3, seed=5) for _ in "ab")
    first(X), second(X)
    second.set_weights(first.get_weights())
    once = first(X, training=True)
    np.testing.assert_array_equal(once, second(X, training=True))
    assert not np.array_equal(once, first(X, training=True))
    seeds = [s for block in first.blocks for s in _seeds(block)]
    assert len(seeds) == len(set(seeds)) == 2 * 6


def _seeds(block):
    layers = (block.attention, block.dropout, block.drop_attention, block.drop_mlp)
    return [*(layer.seed for layer in layers), block.mlp.dropout_hidden.seed, block.mlp.dropout_out.seed]


def test_order_of_tokens_does_not_matter_without_positions():
    encoder = Encoder(2, 3, 24)
    order = [3, 0, 4, 1, 2]
    np.testing.assert_allclose(np.asarray(encoder(X))[:, order], encoder(X[:, order]), atol=1e-5)


def test_heads_that_do_not_divide_are_refused_when_built():
    with pytest.raises(ValueError, match="num_heads=5"):
        Encoder(1, 5, 24).build((None, 5, 12))
