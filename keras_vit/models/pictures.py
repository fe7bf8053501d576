"""What a model is given, checked where a mistake can still be named, and what it gives. B batch, H W pixels."""

import keras
from keras import ops


def checked(images, image_size=None, remedy=""):
    """Pictures (B, H, W, 3) as they are; their size is known from here on if the model has one.

    Args:
        images: What the model was called with.
        image_size: (height, width) that the model takes; None for any.
        remedy: What to do about pictures of another size, which `{size}` in it names.

    Raises:
        ValueError: They are no batch of pictures, not float, or of another size.
    """
    shape = getattr(images, "shape", None)
    if shape is None or len(shape) != 4:
        received = type(images).__name__ if shape is None else f"the shape {tuple(shape)}"
        raise ValueError(
            f"Expected a batch of pictures, (B, H, W, 3). Received: {received}. Of one picture it is images[None], of "
            "a list numpy.stack(images)."
        )
    dtype = keras.backend.standardize_dtype(images.dtype)
    if not keras.backend.is_float_dtype(dtype):
        raise ValueError(f"Expected float pixels in [-1, 1]. Received: {dtype}. Use model.preprocess(images).")
    size = tuple(shape[1:3])
    if image_size is None or size == image_size:
        return images
    if None in size:
        # In a graph: else patches of a larger picture would be taken for more pictures. With the right number of pixels
        # in the wrong shape, a picture still passes.
        return ops.reshape(images, (ops.shape(images)[0], *image_size, 3))
    raise ValueError(
        f"This model takes pictures of {image_size} pixels (height, width). Received: {size}. "
        f"Resize the pictures, or {remedy.format(size=size)}."
    )


def output_spec(model, images):
    """Shape and dtype of what a model makes of symbolic pictures: logits are float32 under mixed precision, too."""
    dtype = model.head.compute_dtype if model.head else model.compute_dtype
    return keras.KerasTensor(model.compute_output_shape(images.shape), dtype)
