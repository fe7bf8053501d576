"""Recomputation changes memory only: eagerly, in graphs, under XLA and strategies, with dropout."""

import functools
import itertools

import keras
import numpy as np
import pytest
import tensorflow as tf

import keras_vit
from keras_vit.layers import norm
from keras_vit.layers.config import REMAT
from keras_vit.layers.xla import image_parts
from keras_vit.layers.xla.dropout import Dropout
from keras_vit.layers.xla.recompute import recompute

pytestmark = pytest.mark.slow

SIZES = {"image_size": 8, "patch_size": 4, "width": 12, "mlp_dim": 24, "num_heads": 3, "num_classes": 5}
IMAGES = np.random.default_rng(0).uniform(-1, 1, (4, 8, 8, 3)).astype("float32")
LABELS = np.array([0, 1, 2, 3])


def build(remat, **options):
    """Two blocks with all kinds of dropout; weights and seeds do not depend on `remat`."""
    keras.utils.set_random_seed(1)
    noise = {"dropout": 0.2, "attention_dropout": 0.1, "stochastic_depth": 0.3, "layer_scale": 0.5}
    model = keras_vit.VisionTransformer(**SIZES, depth=2, seed=3, remat=remat, **noise | options)
    model.head.kernel.assign(np.random.default_rng(2).standard_normal(model.head.kernel.shape))
    return model


def gradients(model, images=IMAGES):
    with tf.GradientTape() as tape:
        logits = model(images, training=True)
        loss = tf.reduce_mean(tf.nn.sparse_softmax_cross_entropy_with_logits(LABELS, logits))
    return [loss, *tape.gradient(loss, model.trainable_variables)]


# A function of no arguments: called twice, it is traced and compiled once.
WAYS = {
    "eager": lambda model: lambda: gradients(model),
    "graph": lambda model: tf.function(lambda: gradients(model)),
    "xla": lambda model: tf.function(lambda: gradients(model), jit_compile=True),
}


def twice(way, remat, **options):
    """Loss and gradients of two calls, with different masks, and the states of the seed generators after them."""
    model = build(remat, **options)
    step = WAYS[way](model)
    values = [np.asarray(value, "float32") for _ in range(2) for value in step()]
    return values, [np.asarray(v) for v in model.variables if "seed_generator_state" in v.path]


@functools.cache
def plain_twice(way, axial=False):
    return twice(way, None, axial=axial)


# Different settings of the blocks: one way to run them suffices.
@pytest.mark.parametrize(
    "remat,way",
    [*itertools.product(REMAT[1:], WAYS), (["block", None], "graph"), (["mlp", "attention"], "graph")],
    ids=str,
)
def test_gradients_are_identical_with_the_same_masks(remat, way):
    (expected, states), (found, new_states) = plain_twice(way), twice(way, remat)
    for one, other in zip(expected, found, strict=True):
        np.testing.assert_allclose(one, other, rtol=1e-4, atol=1e-5)
    assert states and len(states) == len(new_states)
    np.testing.assert_array_equal(states, new_states)


@pytest.mark.parametrize("remat,norms", [(None, 2), ("mlp", 3), ("attention", 3), ("block", 4)])
def test_recomputed_norms_use_the_training_gradient(monkeypatch, remat, norms):
    calls, written = [], norm.layer_norm_for_training
    monkeypatch.setattr(norm, "layer_norm_for_training", lambda *inputs: calls.append(1) or written(*inputs))
    gradients(build(remat))
    assert len(calls) == 2 * norms + 1  # of two blocks, and the last


def test_masks_differ_between_calls():
    model = build("block")
    assert float(gradients(model)[0]) != float(gradients(model)[0])


@pytest.mark.parametrize("remat", [None, "attention", "block"])
def test_attention_without_stored_weights(remat):
    """XLA's steps without dropout. (With dropout, masks under XLA differ from those elsewhere.)"""
    calm = {"dropout": 0.0, "attention_dropout": 0.0, "stochastic_depth": 0.0}
    plain, saving = build(None, **calm), build(remat, **calm)
    for one, other in zip(WAYS["eager"](plain)(), WAYS["xla"](saving)()):
        np.testing.assert_allclose(one, other, atol=1e-5 * np.abs(one).max())


@pytest.fixture
def two_images_a_part(monkeypatch):
    """Of the four images, which have five tokens each."""
    for name, value in {"MAX_TOKENS": 10, "MAX_PART": 10, "MIN_PART": 1, "SUBLANES": 1}.items():
        monkeypatch.setattr(image_parts, name, value)


@pytest.mark.parametrize("pooling", ["token", "gap"])
def test_large_batches_in_parts(pooling, two_images_a_part):
    calm = {"dropout": 0.0, "attention_dropout": 0.0, "stochastic_depth": 0.0, "pooling": pooling}
    plain, saving = build(None, **calm), build("block", **calm)
    step = WAYS["xla"](saving)
    for one, other in zip(WAYS["eager"](plain)(), step()):
        np.testing.assert_allclose(one, other, atol=1e-5 * np.abs(one).max())
    assert "while" in step.experimental_get_compiler_ir()(stage="hlo")


def test_parts_have_separate_masks_and_recompute_the_same(two_images_a_part):
    layer = Dropout(0.5, seed=1)

    @tf.function(jit_compile=True)
    def step(x):
        with tf.GradientTape() as tape:
            tape.watch(x)
            output = recompute(lambda x: layer(x, training=True), x, [layer], output_length=5)
        return output, tape.gradient(output, x)

    output, gradient = step(tf.ones((4, 5, 12)))
    np.testing.assert_array_equal(output, gradient)
    assert set(np.unique(output)) == {0.0, 2.0}
    assert not np.array_equal(output[:2], output[2:])


@pytest.mark.parametrize("batch,parts", [(512, 1), (1024, 4), (2736, 9), (1016, 1), (None, 1)])
def test_number_of_parts(batch, parts):
    """512 images are few enough; 1,016 are 127 times 8, and so few would be slow."""
    assert image_parts.number_of_parts(keras.KerasTensor((batch, 197, 768))) == parts


@pytest.mark.parametrize("remat", REMAT[1:])
def test_axial_blocks(remat):
    for one, other in zip(plain_twice("graph", axial=True)[0], twice("graph", remat, axial=True)[0], strict=True):
        np.testing.assert_allclose(one, other, rtol=1e-4, atol=1e-5)


def test_mixed_precision():
    plain, saving = (twice("graph", which, dtype="mixed_bfloat16")[0] for which in (None, "block"))
    for one, other in zip(plain, saving, strict=True):
        np.testing.assert_allclose(one, other, atol=2e-2)


def test_fit_under_a_strategy():
    found = []
    for remat in (None, "block"):
        with tf.distribute.MirroredStrategy(["CPU:0", "CPU:1"]).scope():
            model = build(remat)
            model.compile("sgd", keras.losses.SparseCategoricalCrossentropy(from_logits=True))
        model.fit(IMAGES, LABELS, batch_size=4, epochs=2, shuffle=False, verbose=0)
        found.append(model.get_weights())
    for one, other in zip(*found):
        np.testing.assert_allclose(one, other, atol=1e-6)


def test_graphs_without_xla_compute_the_forward_pass_twice():
    def products(remat, **options):
        model = build(remat, **options)
        graph = tf.function(lambda: gradients(model)).get_concrete_function().graph
        return sum(operation.type in ("MatMul", "BatchMatMulV2") for operation in graph.get_operations())

    assert products("block") - products(None) >= 2 * 6  # qkv, logits, values, out, hidden, out
    assert products("block", axial=True) - products(None, axial=True) >= 2 * 2 * 6


def test_saved_models_keep_remat_and_return_attention(tmp_path):
    model = build("block")
    model.save(tmp_path / "model.keras")
    loaded = keras_vit.load(str(tmp_path / "model.keras"))
    assert loaded.config.remat == "block" and loaded.encoder.blocks[1].remat == "block"
    np.testing.assert_allclose(loaded.attention_maps(IMAGES), model.attention_maps(IMAGES), atol=1e-6)
