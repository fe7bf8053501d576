"""The last block for the tokens that are read only: outputs and gradients equal those of the full computation."""

import numpy as np
import pytest
import tensorflow as tf

OPTIONS = {
    "plain": {},
    "distillation": {"distillation": True},
    "registers, LayerScale": {"register_tokens": 2, "layer_scale": 0.3, "representation_size": 7},
    "QK-norm, norm after pooling": {"qk_norm": True, "norm_after_pooling": True},
    "positions in every layer": {"position_placement": "every_layer", "remat": "block"},
    "relative positions": {"position_embedding": "relative", "remat": "attention"},
    "stochastic depth": {"stochastic_depth": 0.5, "seed": 3},
}


def full(model, images):
    """Logits of all tokens' encoding, of which the heads then read some."""
    tokens = model.encode(model.embed(images), training=True)
    if model.head_distillation is not None:
        return (model.head(tokens[:, 0]) + model.head_distillation(tokens[:, 1])) / 2
    return model.head(model.pool(tokens))


def output_and_gradients(function, model, images, **options):
    @tf.function(**options)
    def run():
        with tf.GradientTape() as tape:
            output = function(tf.constant(images))
            loss = tf.reduce_sum(tf.sin(output))
        return output, tape.gradient(loss, [weight.value for weight in model.trainable_weights])

    output, gradients = run()
    return [output, *gradients]


@pytest.mark.slow
@pytest.mark.parametrize("name,xla", [*((name, False) for name in OPTIONS), ("QK-norm, norm after pooling", True)])
def test_outputs_and_gradients(trained_toy, images, name, xla):
    # Stochastic depth draws once per image, so the second of two equal models draws the same.
    model, other = (trained_toy(**OPTIONS[name]) for _ in range(2))
    other.set_weights(model.get_weights())
    reduced = output_and_gradients(lambda x: model(x, training=True), model, images, jit_compile=xla)
    complete = output_and_gradients(lambda x: full(other, x), other, images, jit_compile=xla)
    scale = max(np.abs(gradient).max() for gradient in complete[1:])
    for weight, one, all_tokens in zip(["output", *(w.path for w in model.trainable_weights)], reduced, complete):
        np.testing.assert_allclose(one, all_tokens, atol=1e-5 * scale, err_msg=weight)


@pytest.mark.parametrize("changes,length", [({}, 1), ({"distillation": True}, 2), ({"pooling": "gap"}, None)])
def test_the_last_block_computes_the_tokens_that_are_read(toy, images, changes, length, monkeypatch):
    model = toy(**changes)
    lengths = []
    mlp = type(model.encoder.blocks[0].mlp)
    call = mlp.call
    monkeypatch.setattr(mlp, "call", lambda self, x, **options: lengths.append(x.shape[1]) or call(self, x, **options))
    model(images)
    tokens = model.grid[0] * model.grid[1] + model.prefix_tokens
    assert lengths == [tokens, length or tokens]
    lengths.clear()
    model.attention_maps(images)
    assert lengths == [tokens, tokens]


def test_kernels_quantized_by_keras(trained_toy, images):
    model = trained_toy()
    model.encoder.blocks[-1].attention.qkv.quantize("int8")
    np.testing.assert_allclose(model(images), full(model, images), atol=1e-6)
