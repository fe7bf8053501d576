import numpy as np
import pytest
import tensorflow as tf
from PIL import Image


@pytest.fixture
def smooth_image():
    """(24, 32, 3) uint8, smooth, without some of the values."""
    y, x = np.mgrid[:24, :32]
    waves = np.stack([np.sin(y / 5 + x / 9), np.cos(x / 7), np.sin(y / 3) * np.cos(x / 4)], axis=-1)
    return tf.constant(np.round(110 + 90 * waves), tf.uint8)


@pytest.fixture
def color_blocks():
    """A Pillow image (48, 64) of color blocks that JPEG hardly changes."""
    blocks = np.random.default_rng(0).integers(0, 256, (3, 4, 3), "uint8")
    return Image.fromarray(np.kron(blocks, np.ones((16, 16, 1), "uint8")))
