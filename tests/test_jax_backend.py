"""The core on Keras's JAX backend, in a process of its own: the same numbers as on TensorFlow."""

import os
import subprocess
import sys

import numpy as np
import pytest

CODE = """
import sys
import keras, numpy as np
import keras_vit
assert keras.backend.backend() == "jax"
assert "tensorflow" not in sys.modules
folder = sys.argv[1]
model = keras.saving.load_model(f"{folder}/model.keras")
images = np.load(f"{folder}/images.npy")
np.savez(
    f"{folder}/jax.npz",
    logits=model(images),
    attention=model.attention_maps(images),
    rollout=keras_vit.attention_rollout(model, images),
    resized=model.resized((24, 8)).positions.table,
    training=np.shape(model(images, training=True)),
)
"""


@pytest.mark.parametrize("pooling", ["token", "map"])
def test_forward_pass_equals_tensorflow(trained_toy, images, tmp_path, pooling):
    from keras_vit import attention_rollout

    model = trained_toy(pooling=pooling, representation_size=6, dropout=0.1, stochastic_depth=0.1)
    model.save(tmp_path / "model.keras")
    np.save(tmp_path / "images.npy", images)
    environment = {**os.environ, "KERAS_BACKEND": "jax", "JAX_PLATFORMS": "cpu"}
    done = subprocess.run([sys.executable, "-c", CODE, str(tmp_path)], env=environment, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr[-3000:]
    jax = np.load(tmp_path / "jax.npz")
    np.testing.assert_allclose(jax["logits"], model(images), atol=1e-5)
    np.testing.assert_allclose(jax["attention"], model.attention_maps(images), atol=1e-5)
    np.testing.assert_allclose(jax["rollout"], attention_rollout(model, images), atol=1e-5)
    np.testing.assert_allclose(jax["resized"], model.resized((24, 8)).positions.table, atol=1e-6)
    assert tuple(jax["training"]) == (3, 5)
