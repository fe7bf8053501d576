"""The core on Keras's JAX backend, in a separate process: the numbers of TensorFlow, and gradients."""

import os
import subprocess
import sys

import numpy as np
import pytest
import tensorflow as tf

from keras_vit import BiT, attention_rollout

pytestmark = [pytest.mark.slow, pytest.mark.extended]

RELATIVE = {"position_embedding": "relative", "register_tokens": 2, "pooling": "gap", "norm_after_pooling": True}
EVERY_LAYER = {"position_embedding": "learned_2d", "position_placement": "every_layer", "distillation": True}
MODELS = {
    "map": {"depth": 1, "pooling": "map", "representation_size": 6, "dropout": 0.1, "stochastic_depth": 0.1},
    "relative": {"depth": 1, **RELATIVE, "layer_scale": 0.1, "qk_norm": True},
    "rotary": {"position_embedding": "learned_1d_and_rotary", "qk_norm": True, "swiglu": True},
    "axial": {"axial": True, **EVERY_LAYER, "gelu": "erf"},
    "hybrid": {"depth": 1, "resnet_stages": (1,)},
    "remat": {"depth": 3, "remat": ("mlp", "attention", "block")},
}
OTHERS = ["relative", "rotary", "axial", "remat", "bit"]  # the last is a ResNet
CODE = """
import gc, sys
gc.disable()  # faster imports
import jax, keras, numpy as np
import keras_vit
from keras_vit.keras_internals import lowering_for_tpu
from keras_vit.layers import LayerNorm, Mlp, SelfAttention
from keras_vit.layers.xla import attention as xla_attention
assert keras.backend.backend() == "jax"
assert "tensorflow" not in sys.modules
folder, names = sys.argv[1], sys.argv[2:]
images = np.load(f"{folder}/images.npy")
for name in names:
    model = keras.saving.load_model(f"{folder}/{name}.keras")
    weights = [[v.value for v in kind] for kind in (model.trainable_variables, model.non_trainable_variables)]
    maps = getattr(model, "attention_maps", lambda images: 0.0)
    def loss(trainable):
        return jax.numpy.sum(jax.numpy.sin(model.stateless_call(trainable, weights[1], images, training=True)[0]))
    def outputs(images, trainable):
        return model(images), maps(images), () if name in ("map", "axial") else jax.grad(loss)(trainable)
    logits, attention, gradients = jax.jit(outputs)(images, weights[0])
    np.savez(f"{folder}/{name}.npz", *gradients, logits=logits, attention=attention)
    if name in ("hybrid", "relative", "rotary"):  # the forms for TPUs, which do not store attention weights
        with lowering_for_tpu():
            step = jax.jit(jax.grad(lambda trainable: loss(trainable))).trace(weights[0])
        assert ("optimization_barrier" in str(step.jaxpr)) == (name != "relative")
        for one, other in zip(step.lower().compile()(weights[0]), gradients, strict=True):
            np.testing.assert_allclose(one, other, atol=1e-4 * np.abs(other).max() + 1e-7)
    if name in ("hybrid", "remat", "bit"):
        continue
    # Functional models of unknown size, which raise where a call does.
    inputs = keras.Input((None, None, 3))
    functional = jax.jit(keras.Model(inputs, model(inputs)))  # compiled at once, not operation by operation
    np.testing.assert_allclose(functional(images), logits, atol=1e-5)
    for wrong in (keras.Input((64, 64, 3)), keras.Input((*model.image_size, 3), dtype="uint8")):
        try:
            model(wrong)
        except ValueError as error:
            assert "Received: (64, 64)" in str(error) or "Received: uint8" in str(error), error
        else:
            raise AssertionError(f"{wrong} was accepted")
    if name == "map":
        training = jax.jit(lambda images: model.stateless_call(*weights, images, training=True)[0])(images)
        np.savez(
            f"{folder}/more.npz",
            rollout=keras_vit.attention_rollout(model, images),
            resized=model.resized((24, 8)).positions.table,
            training=training,
        )

if "map" not in names:
    sys.exit()
# Written-out gradients equal those that JAX derives; fused attention equals attention with stored weights.
jax.config.update("jax_disable_most_optimizations", False)  # without them, float32 sums are less exact
x = np.random.default_rng(0).standard_normal((2, 5, 12)).astype("float32")
for layer in (LayerNorm(), Mlp(8)):
    layer.build(x.shape)
    weights = [np.random.default_rng(1).standard_normal(weight.shape).astype("float32") for weight in layer.weights]
    def loss(weights, x, training):
        return jax.numpy.sum(jax.numpy.sin(layer.stateless_call(weights, [], x, training=training)[0]))
    gradient = jax.jit(jax.grad(loss, (0, 1)), static_argnums=2)
    written, derived = (gradient(weights, x, training) for training in (True, False))
    jax.tree.map(lambda *both: np.testing.assert_allclose(*both, rtol=1e-4, atol=1e-5), written, derived)

# Keras computes `dot_product_attention` without the GPU's kernel here; the padding of odd lengths and layouts are ours.
assert not xla_attention.can_fuse(jax.numpy.zeros((1, 3, 5, 8), "bfloat16"))
xla_attention.jax_has_gpu = lambda: True
lengths = []
original = keras.ops.dot_product_attention
keras.ops.dot_product_attention = lambda q, k, v, **options: lengths.append(q.shape[1]) or original(q, k, v, **options)
for length in (4, 5):
    layers = [SelfAttention(2, dtype=dtype) for dtype in ("float32", "bfloat16")]
    x = np.random.default_rng(length).standard_normal((2, length, 16)).astype("float32")
    for layer in layers:
        layer.build(x.shape)
    weights = [np.random.default_rng(1).standard_normal(weight.shape).astype("float32") / 4 for weight in layer.weights]
    def loss(weights, x, layer, training):
        output = layer.stateless_call([w.astype(layer.dtype) for w in weights], [], x, training=training)[0]
        return jax.numpy.sum(jax.numpy.sin(output.astype("float32")))
    gradient = jax.jit(jax.grad(loss, (0, 1)), static_argnums=(2, 3))
    for training in (True, False):
        stored, fused = (gradient(weights, x, layer, training) for layer in layers)
        jax.tree.map(lambda a, b: np.testing.assert_allclose(a, b, atol=0.05 * np.abs(a).max()), stored, fused)
        assert lengths == [length + 1 if training and length % 2 else length], lengths
        lengths.clear()
# Attention weights that are dropped or returned must exist.
layer = SelfAttention(2, dropout=0.5, dtype="bfloat16")
layer(x, training=True), layer(x, return_attention=True)
assert not lengths
layer(x)
assert lengths == [5]
assert not any(map(xla_attention.can_fuse, [np.zeros((1, 1, 2, d), t) for d, t in ((8, "float32"), (12, "float16"))]))
"""


def _check_gradients(name, model, images, jax):
    """All gradients of a training step equal those of TensorFlow, which stores what JAX recomputes with `remat`."""
    if name == "remat":
        stored = type(model).from_config({**model.get_config(), "remat": None})
        stored.set_weights(model.get_weights())
        model = stored
    with tf.GradientTape() as tape:
        loss = tf.reduce_sum(tf.sin(model(images, training=True)))
    variables = model.trainable_variables
    for i, (variable, gradient) in enumerate(zip(variables, tape.gradient(loss, [v.value for v in variables]))):
        scale = np.abs(gradient).max() + 1e-3
        np.testing.assert_allclose(jax[f"arr_{i}"], gradient, atol=1e-4 * scale, err_msg=f"{name} {variable.path}")


@pytest.mark.parametrize("names", [["map", "hybrid"], OTHERS], ids=str)
def test_forward_pass_equals_tensorflow_and_gradients_are_correct(trained_toy, images, tmp_path, names):
    models = {name: trained_toy(**MODELS[name]) for name in names if name != "bit"}
    if "bit" in names:
        models["bit"] = BiT(stages=(1, 1), width_factor=0.5, image_size=16, num_classes=5)
        for weight in models["bit"].weights:
            weight.assign(weight + 0.1 * np.random.default_rng(7).standard_normal(weight.shape))
    for name, model in models.items():
        model.save(tmp_path / f"{name}.keras")
    np.save(tmp_path / "images.npy", images)
    environment = {**os.environ, "KERAS_BACKEND": "jax", "JAX_PLATFORMS": "cpu", "JAX_DISABLE_MOST_OPTIMIZATIONS": "1"}
    environment.pop("XLA_FLAGS", None)  # of conftest.py; the gradients are compared with optimizations
    command = [sys.executable, "-c", CODE, str(tmp_path), *models]
    done = subprocess.run(command, env=environment, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr[-3000:]
    for name, model in models.items():
        jax = np.load(tmp_path / f"{name}.npz")
        np.testing.assert_allclose(jax["logits"], model(images), atol=1e-5, err_msg=name)
        if name != "bit":
            np.testing.assert_allclose(jax["attention"], model.attention_maps(images), atol=1e-5, err_msg=name)
        if name not in ("map", "axial"):  # the first has dropout
            _check_gradients(name, model, images, jax)
    if "map" not in names:
        return
    more, model = np.load(tmp_path / "more.npz"), models["map"]
    np.testing.assert_allclose(more["rollout"], attention_rollout(model, images), atol=1e-5)
    np.testing.assert_allclose(more["resized"], model.resized((24, 8)).positions.table, atol=1e-6)
    assert more["training"].shape == (3, 5) and np.abs(more["training"] - model(images)).max() > 1e-3


EVALUATION = """
import os, sys
import numpy as np
from PIL import Image
from keras_vit.recipes import fit
from keras_vit.recipes.recipe import Architecture, Data, Optimizer, Run, Supervised

folder = sys.argv[1] + "/images"
for number in range(16):
    for split in ("train", "test"):
        path = f"{folder}/{split}/{'ab'[number % 2]}"
        os.makedirs(path, exist_ok=True)
        Image.new("RGB", (8, 8), (16 * number, 0, 0)).save(f"{path}/{number}.png")
for number in (3, 5):
    open(f"{folder}/test/b/{number}.png", "wb").write(b"no image")
data = Data(f"folder:{folder}", image_size=8, batch_size=8, validation_split=None)
recipe = Supervised(Architecture("Ti/4", depth=1, width=12, mlp_dim=24, num_heads=3), data=data, optimizer=Optimizer(
    warmup_steps=1), run=Run(precision="float32"), total_steps=2)
model, _ = fit.train(recipe)
weights = model.get_weights()
try:
    fit.evaluate(model, data, "test")
    raise SystemExit("no error")
except ValueError as error:
    assert "max_corrupt" in str(error)
for before, after in zip(weights, model.get_weights(), strict=True):
    np.testing.assert_array_equal(before, after)
"""


def test_an_error_in_an_evaluation_leaves_the_weights(tmp_path):
    environment = {**os.environ, "KERAS_BACKEND": "jax", "JAX_PLATFORMS": "cpu"}
    command = [sys.executable, "-c", EVALUATION, str(tmp_path)]
    done = subprocess.run(command, env=environment, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr[-3000:]
