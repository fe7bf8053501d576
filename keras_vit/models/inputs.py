"""What a model is given, checked where a mistake can still be named, and what it gives. B batch, H W pixels."""

import keras
from keras import ops


def check_images(images, image_size=None, remedy=""):
    """Raises a ValueError unless these are a batch of float images (B, H, W, 3) of a size that the model takes.

    Args:
        images: What the model was called with, symbolic or not.
        image_size: (height, width) that the model takes; None for any.
        remedy: What to do about images of another size, which `{size}` in it names.
    """
    shape = getattr(images, "shape", None)
    if getattr(shape, "rank", 0) is None:
        size = ", ".join(map(str, image_size or ("height", "width")))
        raise ValueError(
            "Expected a batch of images, (B, H, W, 3). Received: a tensor of unknown rank, as tf.py_function returns "
            f"it. Say its shape: tf.ensure_shape(image, ({size}, 3)), and make batches after that."
        )
    if shape is None or len(shape) != 4:
        received = type(images).__name__ if shape is None else f"the shape {tuple(shape)}"
        raise ValueError(
            f"Expected a batch of images, (B, H, W, 3). Received: {received}. Of one image it is images[None], of "
            "a list numpy.stack(images)."
        )
    if shape[3] not in (3, None):
        raise ValueError(
            f"Expected RGB images, (B, H, W, 3). Received: the shape {tuple(shape)}. Gray ones become RGB by "
            "numpy.repeat(images, 3, axis=-1); (B, 3, H, W) becomes (B, H, W, 3) by numpy.moveaxis(images, 1, -1)."
        )
    dtype = keras.backend.standardize_dtype(images.dtype)
    if not keras.backend.is_float_dtype(dtype):
        raise ValueError(f"Expected float pixels in [-1, 1]. Received: {dtype}. Use model.preprocess(images).")
    size = tuple(shape[1:3])
    # A side that is not known yet may be the right one, see `checked`.
    if image_size and any(found not in (wanted, None) for found, wanted in zip(size, image_size)):
        raise ValueError(
            f"This model takes images of {image_size} pixels (height, width). Received: {size}. "
            f"Resize the images, or {remedy.format(size=size)}."
        )


def checked(images, image_size=None, remedy=""):
    """Images (B, H, W, 3) as they are; their size is known from here on if the model has one. See `check_images`.

    Raises:
        ValueError: They are no batch of images, not float, or of another size.
    """
    check_images(images, image_size, remedy)
    if image_size is None or tuple(images.shape[1:3]) == image_size:
        return images
    # In a graph: else patches of a larger image would be taken for more images. With the right number of pixels in
    # the wrong shape, an image still passes.
    return ops.reshape(images, (ops.shape(images)[0], *image_size, 3))


def output_spec(model, images, image_size=None, remedy=""):
    """Shape and dtype of what a model makes of symbolic images: logits are float32 under mixed precision, too.

    The arguments are those of `check_images`, and what a call refuses is refused here.
    """
    check_images(images, image_size, remedy)
    dtype = model.head.compute_dtype if model.head else model.compute_dtype
    shape = (images.shape[0], *(image_size or images.shape[1:3]), 3)
    return keras.KerasTensor(model.compute_output_shape(shape), dtype)
