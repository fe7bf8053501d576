"""From pixels to patch embeddings. B batch, H W pixels, C channels, P patch side, h w grid, N = h * w, D width."""

import keras
import numpy as np
from keras import ops

from keras_vit.images import as_size, patch_grid
from keras_vit.keras_internals import of_size
from keras_vit.layers.composite import Composite
from keras_vit.layers.positions import interpolation_matrix


@keras.saving.register_keras_serializable(package="keras_vit")
class ExtractPatches(keras.layers.Layer):
    """Cuts images into flattened patches, the x_p of the paper's equation 1.

    Patches are ordered row by row, values within a patch by row, column and channel, so that a Dense layer with the
    reshaped convolution kernel computes the same embeddings as `PatchEmbedding`.

    Input: (B, H, W, C). Output: (B, N, P * P * C); floats in the layer's compute dtype, integers unchanged.

    Args:
        patch_size: Side of a patch in pixels, or (height, width).

    Raises:
        ValueError: The patch does not divide the image (when built).
    """

    def __init__(self, patch_size, **kwargs):
        super().__init__(**kwargs)
        self.patch_size = as_size(patch_size, "patch_size")

    def build(self, input_shape):
        patch_grid(input_shape[1:3], self.patch_size)

    def call(self, images):
        height, width, channels = images.shape[1:]
        images = of_size(images, (height, width))
        (p, q), (h, w) = self.patch_size, patch_grid((height, width), self.patch_size)
        rows = ops.reshape(images, (-1, h, p, w * q * channels))  # (B, h, P, W*C)
        cells = ops.reshape(rows, (-1, p, w, q * channels))  # (B*h, P, w, P*C)
        cells = ops.transpose(cells, (0, 2, 1, 3))  # (B*h, w, P, P*C)
        return ops.reshape(cells, (-1, h * w, p * q * channels))  # (B, N, P*P*C)

    def compute_output_shape(self, input_shape):
        h, w = patch_grid(input_shape[1:3], self.patch_size)
        return (input_shape[0], h * w, self.patch_size[0] * self.patch_size[1] * input_shape[3])

    def get_config(self):
        return {**super().get_config(), "patch_size": self.patch_size}


@keras.saving.register_keras_serializable(package="keras_vit")
class PatchEmbedding(Composite):
    """Extracts patches and projects each to the model's width: x_p E of the paper's equation 1, as one convolution.

    Kernel size and stride equal the patch size. Initial kernels are LeCun normal and biases zeros, as in the paper's
    code.

    Input: (B, H, W, C) float, in [-1, 1] for published weights. Output: (B, N, D).

    Args:
        width: Width of a token, D.
        patch_size: Side of a patch in pixels, or (height, width).

    Raises:
        ValueError: The patch does not divide the image (when built).
    """

    def __init__(self, width, patch_size, **kwargs):
        super().__init__(**kwargs)
        self.width = width
        self.patch_size = as_size(patch_size, "patch_size")
        self.projection = keras.layers.Conv2D(
            width,
            self.patch_size,
            strides=self.patch_size,
            padding="valid",
            data_format="channels_last",
            kernel_initializer="lecun_normal",
            dtype=self.dtype_policy,
            name="projection",
        )

    def build(self, input_shape):
        self.image_size = tuple(input_shape[1:3])
        self.grid = patch_grid(self.image_size, self.patch_size)
        self.projection.build(input_shape)

    def call(self, images):
        embeddings = self.projection(of_size(images, self.image_size))  # (B, h, w, D)
        return ops.reshape(embeddings, (-1, self.grid[0] * self.grid[1], self.width))  # (B, N, D)

    def compute_output_shape(self, input_shape):
        h, w = patch_grid(input_shape[1:3], self.patch_size)
        return (input_shape[0], h * w, self.width)

    def get_config(self):
        return {**super().get_config(), "width": self.width, "patch_size": self.patch_size}


def resample_patch_embedding(kernel, patch_size):
    """Resamples the kernel of a patch embedding to another patch size: PI-resize of FlexiViT.

    "FlexiViT: One Model for All Patch Sizes" (arXiv 2212.08013), section 3.3, and big_vision's `resample_patchemb`
    (models/proj/flexi/vit.py): the new kernel is pinv(R^T) times the old one, where the matrix R resizes a patch
    linearly with half-pixel centers, as `tf.image.resize`. An enlarged patch then has the embedding of the original
    one, exactly; embeddings of patches that shrink are as close as possible for pixels that are independent.

    Args:
        kernel: Array (P, Q, C, D).
        patch_size: Side of the new patches in pixels, or (height, width).

    Returns:
        A float32 NumPy array (height, width, C, D); the same numbers if the size is the kernel's.

    Raises:
        ValueError: The kernel does not have four axes, or the size is not one or two positive integers.
    """
    kernel = np.asarray(kernel, "float32")
    sides = as_size(patch_size, "patch_size")
    if kernel.ndim != 4:
        raise ValueError(f"Expected a kernel (P, Q, channels, width). Received: the shape {kernel.shape}")
    if kernel.shape[:2] == sides:
        return kernel
    # R is the Kronecker product of the resizing of rows and of columns, and the pseudo-inverse that of theirs.
    rows, columns = (
        np.linalg.pinv(interpolation_matrix(old, new, "half_pixel").T) for old, new in zip(kernel.shape, sides)
    )
    return np.einsum("ih,jw,hwcd->ijcd", rows, columns, kernel.astype("float64"), optimize=True).astype("float32")
