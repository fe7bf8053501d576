"""The core on Keras's JAX backend, in a process of its own: the same numbers as on TensorFlow."""

import os
import subprocess
import sys

import numpy as np

from keras_vit import attention_rollout

PLAIN = {"representation_size": 6, "dropout": 0.1, "stochastic_depth": 0.1}
MODELS = {
    "token": PLAIN,
    "map": {**PLAIN, "pooling": "map"},
    "sincos": {
        "register_tokens": 2,
        "distillation": True,
        "position_embedding": "sincos_2d",
        "prefix_positions": False,
        "layer_scale": 0.1,
        "qk_norm": True,
    },
    "relative": {"register_tokens": 2, "position_embedding": "relative", "pooling": "gap", "norm_after_pooling": True},
    "axial": {"axial": True, "position_embedding": "learned_2d", "position_placement": "every_layer"},
}
CODE = """
import sys
import keras, numpy as np
import keras_vit
assert keras.backend.backend() == "jax"
assert "tensorflow" not in sys.modules
folder, names = sys.argv[1], sys.argv[2:]
images = np.load(f"{folder}/images.npy")
for name in names:
    model = keras.saving.load_model(f"{folder}/{name}.keras")
    np.savez(f"{folder}/{name}.npz", logits=model(images), attention=model.attention_maps(images))
    if name == "token":
        np.savez(
            f"{folder}/more.npz",
            rollout=keras_vit.attention_rollout(model, images),
            resized=model.resized((24, 8)).positions.table,
            training=np.shape(model(images, training=True)),
        )
"""


def test_forward_pass_equals_tensorflow(trained_toy, images, tmp_path):
    models = {name: trained_toy(**options) for name, options in MODELS.items()}
    for name, model in models.items():
        model.save(tmp_path / f"{name}.keras")
    np.save(tmp_path / "images.npy", images)
    environment = {**os.environ, "KERAS_BACKEND": "jax", "JAX_PLATFORMS": "cpu"}
    command = [sys.executable, "-c", CODE, str(tmp_path), *models]
    done = subprocess.run(command, env=environment, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr[-3000:]
    for name, model in models.items():
        jax = np.load(tmp_path / f"{name}.npz")
        np.testing.assert_allclose(jax["logits"], model(images), atol=1e-5, err_msg=name)
        np.testing.assert_allclose(jax["attention"], model.attention_maps(images), atol=1e-5, err_msg=name)
    more, model = np.load(tmp_path / "more.npz"), models["token"]
    np.testing.assert_allclose(more["rollout"], attention_rollout(model, images), atol=1e-5)
    np.testing.assert_allclose(more["resized"], model.resized((24, 8)).positions.table, atol=1e-6)
    assert tuple(more["training"]) == (3, 5)
