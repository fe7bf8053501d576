"""Four logical CPUs for the tests of tf.distribute, seeds, toy models, caches of their own, and no network."""

import gc
import os
import socket

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")
os.environ["CUDA_VISIBLE_DEVICES"] = ""
# XLA's programs run once or twice: optimizing their machine code takes longer. Preflight's compiler ignores this.
os.environ.setdefault("XLA_FLAGS", "--xla_backend_optimization_level=0")

import keras
import numpy as np
import pytest
import tensorflow as tf
from memory import release_memory
from randomize import randomize

import keras_vit
from keras_vit.weights.downloads import cache_dir

# Each graph runs once or twice, too: optimizing it takes longer. Commands in processes of their own optimize theirs.
tf.config.optimizer.set_experimental_options({"disable_meta_optimizer": True})
tf.config.set_logical_device_configuration(
    tf.config.list_physical_devices("CPU")[0], [tf.config.LogicalDeviceConfiguration()] * 4
)
TOY = {"image_size": 16, "patch_size": 4, "depth": 2, "width": 12, "mlp_dim": 24, "num_heads": 3, "num_classes": 5}


def pytest_collection_finish():
    """Rare garbage collections that omit the objects of the imports, which take a twentieth of the time otherwise."""
    gc.collect()
    gc.freeze()
    gc.set_threshold(50_000, 20, 20)


@pytest.fixture(scope="session", autouse=True)
def _own_home(tmp_path_factory):
    """Caches of the tests alone. Of the user's they have LiteRT.js, which `make web-runtime` downloads before."""
    web, folder = cache_dir() / "web", tmp_path_factory.mktemp("home")
    (folder / "keras_vit").mkdir()
    if web.is_dir():
        (folder / "keras_vit" / "web").symlink_to(web)
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("KERAS_HOME", str(folder))
        yield


@pytest.fixture(scope="session", autouse=True)
def _no_network():
    """Refuses connections of this process to other machines."""
    connect = socket.socket.connect

    def connect_here(self, address):
        if self.family != socket.AF_UNIX and address[0] not in ("127.0.0.1", "::1", "localhost"):
            raise ConnectionRefusedError(f"Tests must not need a network: {address}")
        return connect(self, address)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(socket.socket, "connect", connect_here)
        yield


@pytest.fixture(autouse=True)
def _fresh_state():
    keras.utils.clear_session(free_memory=False)  # a garbage collection for each test takes minutes in all
    keras.utils.set_random_seed(0)


@pytest.fixture(scope="module", autouse=True)
def _released_memory():
    yield
    release_memory()


@pytest.fixture
def logical_cpus(monkeypatch):
    """Function that lets `run.strategy="mirrored"` find only this number of the four logical CPUs."""
    every = tf.config.list_logical_devices

    def limit(count):
        monkeypatch.setattr(tf.config, "list_logical_devices", lambda kind=None: every(kind)[:count])

    return limit


@pytest.fixture
def toy():
    """Builds a toy VisionTransformer; keyword arguments override `TOY`."""
    return lambda **changes: keras_vit.VisionTransformer(**{**TOY, **changes})


@pytest.fixture
def trained_toy(toy):
    """A toy whose weights are all random: a head of zeros would hide differences before it."""

    return lambda **changes: randomize(toy(**changes))


@pytest.fixture
def images():
    """(3, 16, 16, 3) float32 in [-1, 1]."""
    return np.random.default_rng(1).uniform(-1, 1, (3, 16, 16, 3)).astype("float32")


@pytest.fixture(scope="session")
def data_dir(tmp_path_factory):
    """Where TensorFlow Datasets prepares the digits, once for all tests."""
    return str(tmp_path_factory.mktemp("tfds"))
