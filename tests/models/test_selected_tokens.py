"""The last block for the tokens that are read only: outputs and gradients equal those of the full computation."""

import numpy as np
import pytest
import tensorflow as tf

import keras_vit
from keras_vit.layers.tokens import take_tokens

TOKENS = np.random.default_rng(0).normal(size=(2, 5, 12)).astype("float32")
# The options of a model, and whether XLA compiles it; None: eagerly.
CASES = {
    "plain": ({}, False),
    "distillation": ({"distillation": True}, True),
    "registers, LayerScale": ({"register_tokens": 2, "layer_scale": 0.3, "representation_size": 7}, None),
    "positions in every layer": ({"position_placement": "every_layer", "remat": "block"}, False),
    "recomputed MLP": ({"remat": "mlp"}, None),
    "rotary positions": ({"position_embedding": "rotary", "register_tokens": 2}, True),
    "relative positions, all tokens computed": ({"position_embedding": "relative"}, None),
    "stochastic depth": ({"stochastic_depth": 0.5, "seed": 3}, None),
    "bfloat16": ({"dtype": "mixed_bfloat16"}, None),
}


def full(model, images):
    """Logits of all tokens' encoding, of which the heads then read some."""
    tokens = model.encode(model.embed(images), training=True)
    if model.head_distillation is not None:
        return (model.head(tokens[:, 0]) + model.head_distillation(tokens[:, 1])) / 2
    return model.head(model.pool(tokens))


def output_and_gradients(function, model, images, xla):
    def run():
        with tf.GradientTape() as tape:
            output = function(tf.constant(images))
            loss = tf.reduce_sum(tf.sin(output))
        return output, tape.gradient(loss, [weight.value for weight in model.trainable_weights])

    output, gradients = run() if xla is None else tf.function(run, jit_compile=xla)()
    return [output, *gradients]


def assert_equal_to_rounding(model, reduced, complete, tolerance=1e-5):
    """Differences relative to the largest value of each array; gradients that are zero by symmetry to all gradients."""
    largest = max(np.abs(gradient).max() for gradient in complete[1:])
    for weight, one, all_tokens in zip(["output", *(w.path for w in model.trainable_weights)], reduced, complete):
        scale = max(np.abs(all_tokens).max(), 0.03 * largest)
        np.testing.assert_allclose(one, all_tokens, atol=tolerance * scale, err_msg=weight)


@pytest.mark.slow
@pytest.mark.parametrize("name", CASES)
def test_outputs_and_gradients(trained_toy, images, name):
    # Stochastic depth draws once per image, so the second of two equal models draws the same.
    options, xla = CASES[name]
    model, other = (trained_toy(**options) for _ in range(2))
    other.set_weights(model.get_weights())
    reduced = output_and_gradients(lambda x: model(x, training=True), model, images, xla)
    complete = output_and_gradients(lambda x: full(other, x), other, images, xla)
    assert_equal_to_rounding(model, reduced, complete, 0.03 if "dtype" in options else 1e-5)


@pytest.mark.slow
@pytest.mark.parametrize("xla", [None, True])
def test_chosen_tokens(trained_toy, images, xla):
    model = trained_toy(pooling="none", num_classes=0)
    read = np.array([[4, 1], [2, 0], *[[3, 2]] * (len(images) - 2)], "int32")

    def some(x):
        return model.encode(model.embed(x), training=True, read=read)

    def every(x):
        return take_tokens(model.encode(model.embed(x), training=True), read)

    reduced, complete = (output_and_gradients(function, model, images, xla) for function in (some, every))
    assert_equal_to_rounding(model, reduced, complete)


def test_block_alone_and_an_encoder_without_blocks():
    block = keras_vit.layers.EncoderBlock(num_heads=3, mlp_dim=24)
    np.testing.assert_allclose(block(TOKENS, read=1), block(TOKENS)[:, :1], atol=1e-6)
    with pytest.raises(ValueError, match=r"Received: \(\)"):
        block(TOKENS, read=np.int64(1))  # Keras makes it a tensor
    relative = keras_vit.layers.EncoderBlock(num_heads=3, mlp_dim=24, relative_positions=True)
    with pytest.raises(ValueError, match="read=1"):
        relative(TOKENS, read=1)
    encoder = keras_vit.layers.Encoder(0, num_heads=3, mlp_dim=24)
    np.testing.assert_allclose(encoder(TOKENS, read=1), encoder(TOKENS)[:, :1], atol=1e-6)


@pytest.mark.parametrize("changes,length", [({}, 1), ({"distillation": True}, 2), ({"pooling": "gap"}, None)])
def test_the_last_block_computes_the_tokens_that_are_read(toy, images, changes, length, monkeypatch):
    model, lengths = toy(**changes), []
    mlp = type(model.encoder.blocks[0].mlp)
    call = mlp.call
    monkeypatch.setattr(mlp, "call", lambda self, x, **options: lengths.append(x.shape[1]) or call(self, x, **options))
    model(images)
    tokens = model.grid[0] * model.grid[1] + model.prefix_tokens
    assert lengths == [tokens, length or tokens]
    lengths.clear()
    model.attention_maps(images)
    assert lengths == [tokens, tokens]
