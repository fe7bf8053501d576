"""What every way out of Keras needs of a model."""

import keras


def check_exportable(model, what: str):
    """Raises ValueError if a graph of fixed pictures cannot be made of a model; `what` would be written."""
    if keras.backend.backend() != "tensorflow":
        raise ValueError(
            f"{what} is written on Keras's TensorFlow backend, but this is {keras.backend.backend()}. Save the model "
            "as .keras and export it with the environment variable KERAS_BACKEND=tensorflow."
        )
    if model.image_size is None:
        raise ValueError(f"{model.name} takes pictures of any size; say which with model.resized(224).")
