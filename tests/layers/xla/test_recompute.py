"""Recomputation changes memory only: eagerly, in graphs, under XLA and strategies, with dropout."""

import functools

import keras
import numpy as np
import pytest
import tensorflow as tf

import keras_vit
from keras_vit.layers.xla import recompute as recomputation
from keras_vit.layers.xla.recompute import Dropout, recompute

SIZES = {"image_size": 8, "patch_size": 4, "width": 12, "mlp_dim": 24, "num_heads": 3, "num_classes": 5}
NOISE = {"dropout": 0.2, "attention_dropout": 0.1}
IMAGES = np.random.default_rng(0).uniform(-1, 1, (4, 8, 8, 3)).astype("float32")
LABELS = np.array([0, 1, 2, 3])


def build(remat, noise=NOISE, depth=1, **options):
    """Blocks with LayerScale and all kinds of dropout; weights and seeds do not depend on `remat`."""
    keras.utils.set_random_seed(1)
    options |= {**noise, "stochastic_depth": [0.3 if noise else 0.0] * depth, "layer_scale": 0.5, "seed": 3}
    model = keras_vit.VisionTransformer(**SIZES, depth=depth, remat=remat, **options)
    model.head.kernel.assign(np.random.default_rng(2).standard_normal(model.head.kernel.shape))
    return model


def gradients(model):
    with tf.GradientTape() as tape:
        logits = model(IMAGES, training=True)
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
    assert values[0] != values[len(values) // 2]  # the losses
    return values, [np.asarray(v) for v in model.variables if "seed_generator_state" in v.path]


@functools.cache
def plain_twice(way, **options):
    return twice(way, None, **options)


@pytest.mark.slow
@pytest.mark.parametrize(
    "remat,way,options",
    [
        ("mlp", "graph", {}),
        ("attention", "graph", {}),
        ("block", "eager", {}),
        ("block", "xla", {}),
        (["block", None], "graph", {"depth": 2}),
        (["mlp", "attention"], "graph", {"depth": 2}),
        ("mlp", "graph", {"axial": True}),
        ("attention", "graph", {"axial": True}),
        ("block", "graph", {"axial": True}),
        ("block", "graph", {"dtype": "mixed_bfloat16"}),
    ],
    ids=str,
)
def test_gradients_are_identical_with_the_same_masks(remat, way, options):
    (expected, states), (found, new_states) = plain_twice(way, **options), twice(way, remat, **options)
    tolerance = {"atol": 2e-2} if "dtype" in options else {"rtol": 1e-4, "atol": 1e-5}
    for one, other in zip(expected, found, strict=True):
        np.testing.assert_allclose(one, other, **tolerance)
    assert states
    np.testing.assert_array_equal(states, new_states)


@pytest.fixture
def two_images_a_part(monkeypatch):
    """Of the four images, which have five tokens each."""
    for name, value in {"MAX_TOKENS": 10, "MAX_PART": 10, "MIN_PART": 1, "SUBLANES": 1}.items():
        monkeypatch.setattr(recomputation, name, value)


@pytest.mark.slow
@pytest.mark.parametrize("remat,parts,pooling", [("attention", 1, "token"), ("block", 2, "token"), ("block", 2, "gap")])
def test_xla_without_stored_weights_and_in_parts(remat, parts, pooling, request):
    """Without dropout, whose masks under XLA differ from those elsewhere."""
    if parts > 1:
        request.getfixturevalue("two_images_a_part")
    plain, saving = build(None, noise={}, pooling=pooling), build(remat, noise={}, pooling=pooling)
    step = WAYS["xla"](saving)
    for one, other in zip(WAYS["eager"](plain)(), step()):
        np.testing.assert_allclose(one, other, atol=1e-5 * np.abs(one).max())
    assert ("while" in step.experimental_get_compiler_ir()(stage="hlo")) == (parts > 1)


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
    assert recomputation.number_of_parts(keras.KerasTensor((batch, 197, 768))) == parts


@pytest.mark.slow
def test_under_a_strategy():
    strategy, found = tf.distribute.MirroredStrategy(["CPU:0", "CPU:1"]), []
    for remat in (None, "block"):
        with strategy.scope():
            model = build(remat, noise={})
        run = tf.function(lambda model=model: strategy.run(lambda: gradients(model)))
        found.append([np.asarray(x) for each in run() for x in strategy.experimental_local_results(each)])
    assert len(found[0]) == 2 * (1 + len(model.trainable_variables))
    for one, other in zip(*found, strict=True):
        np.testing.assert_allclose(one, other, atol=1e-6)


@pytest.mark.parametrize("axial,products", [(False, 6), (True, 12)])  # qkv, logits, values, out, hidden, out
def test_graphs_without_xla_compute_the_forward_pass_twice(axial, products):
    def count(remat):
        model = build(remat, noise={}, axial=axial)
        graph = tf.function(lambda: gradients(model)).get_concrete_function().graph
        return sum(operation.type in ("MatMul", "BatchMatMulV2") for operation in graph.get_operations())

    assert count("block") - count(None) >= products
