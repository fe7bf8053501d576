"""Attention under XLA equals plain attention, whole and in chunks, forward and backward."""

import numpy as np
import pytest
import tensorflow as tf

from keras_vit.layers import EncoderBlock, SelfAttention
from keras_vit.layers.attention import attention_weights
from keras_vit.layers.xla import attention as lean_attention


def normal(*shape, seed=0):
    return tf.constant(np.random.default_rng(seed).standard_normal(shape), "float32")


def plain(query, key, value):
    return tf.matmul(attention_weights(query, key), value)


def run(function, *values, dtype="float32"):
    """The result and the gradients of a weighted sum of it, compiled by XLA."""

    @tf.function(jit_compile=True)
    def step(*values):
        values = [tf.cast(value, dtype) for value in values]
        with tf.GradientTape() as tape:
            tape.watch(values)
            result = function(*values)
            loss = tf.reduce_sum(result * tf.cast(normal(*result.shape, seed=9), dtype))
        return [tf.cast(x, "float32") for x in (result, *tape.gradient(loss, values))]

    return step(*values)


@pytest.fixture
def chunks(monkeypatch):
    """More than 10 queries are computed in chunks of 8."""
    monkeypatch.setattr(lean_attention, "MAX_QUERIES", 10)
    monkeypatch.setattr(lean_attention, "CHUNK_SIZE", 8)


@pytest.mark.slow
@pytest.mark.parametrize("length", [7, 19, 24])
def test_chunks(chunks, length):
    """19 tokens in chunks of 8 require padding by 5; without subtracting the maximum, the logits would overflow."""
    values = [normal(2, 3, length, 4, seed=i) * scale for i, scale in enumerate((9.0, 9.0, 1.0))]
    for one, other in zip(run(lean_attention.attend, *values), run(plain, *values)):
        np.testing.assert_allclose(one, other, atol=2e-5 * np.abs(other).max())


def test_graph_has_a_loop_over_chunks(chunks):
    for length, loops in ((10, 0), (11, 1)):
        graph = tf.function(lean_attention.attend).get_concrete_function(*[normal(1, 1, length, 4)] * 3).graph
        assert sum(operation.type in ("While", "StatelessWhile") for operation in graph.get_operations()) == loops


def test_half_precision():
    values = [normal(2, 3, 30, 8, seed=i) for i in range(3)]
    for one, other in zip(run(lean_attention.attend, *values, dtype="bfloat16"), run(plain, *values)):
        np.testing.assert_allclose(one, other, atol=0.02 * np.abs(other).max())


@pytest.mark.slow
@pytest.mark.parametrize("options", [{}, {"qk_norm": True}, {"relative_positions": True}], ids=str)
def test_compiled_layer_equals_eager_layer(options):
    layer, tokens = SelfAttention(3, **options), normal(2, 9, 12)
    layer(tokens)
    for variable in layer.trainable_variables:
        variable.assign(variable + 0.1 * normal(*variable.shape, seed=3))

    def step():
        with tf.GradientTape() as tape:
            tape.watch(tokens)
            output = layer(tokens, training=True)
            loss = tf.reduce_sum(output * normal(2, 9, 12, seed=4))
        return [output, *tape.gradient(loss, [tokens, *layer.trainable_variables])]

    for one, other in zip(tf.function(step, jit_compile=True)(), step()):
        np.testing.assert_allclose(one, other, atol=1e-5 * max(1.0, np.abs(other).max()))


def test_dropout_and_requested_weights_use_plain_attention(monkeypatch):
    unwanted = "keras_vit.layers.attention.attend_without_weights"
    monkeypatch.setattr(unwanted, lambda *_: pytest.fail("Attention without weights was called."))
    tokens = normal(2, 9, 12)
    dropped, requested = SelfAttention(3, dropout=0.5), SelfAttention(3)
    dropped.build(tokens.shape), requested.build(tokens.shape)
    output = tf.function(lambda: dropped(tokens, training=True), jit_compile=True)()
    assert np.abs(output - dropped(tokens)).max() > 0.01
    _, weights = tf.function(lambda: requested(tokens, return_attention=True), jit_compile=True)()
    assert weights.shape == (2, 3, 9, 9)


def test_block_with_unknown_batch_size(chunks):
    block, tokens = EncoderBlock(num_heads=3, mlp_dim=24), normal(5, 11, 12)
    expected = block(tokens)
    compiled = tf.function(block, jit_compile=True, input_signature=[tf.TensorSpec((None, 11, 12))])
    np.testing.assert_allclose(compiled(tokens), expected, atol=1e-5)
