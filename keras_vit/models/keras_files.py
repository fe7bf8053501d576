"""Writes .keras files, and reads them, which may be damaged or hostile."""

import json
import os
import zipfile
from pathlib import Path

import keras

from keras_vit.models.least_weights import least_weights
from keras_vit.weights.files import MAX_COMPRESSION, check_local, checked

WEIGHTS = "model.weights.h5"
# Its parts are repeated by Keras for each layer; ours has a few kilobytes.
MAX_CONFIG_BYTES = 16 << 20
FLOAT = ("float16", "bfloat16", "float32", "float64")


def save(self, filepath, overwrite=True, zipped=None, **kwargs):
    """`keras.Model.save`, but not to HDF5: Keras reads such a file only with `custom_objects`."""
    if os.fspath(filepath).endswith((".h5", ".hdf5")):
        raise ValueError(
            f"Expected a name that ends in .keras. Received: {filepath}. For HDF5 write the weights alone: "
            "model.save_weights('model.weights.h5')"
        )
    keras.Model.save(self, filepath, overwrite, zipped, **kwargs)


def read_keras_file(path):
    """The model that Keras saved, of any class that Keras finds.

    Raises:
        FileNotFoundError: There is no such file.
        ValueError: It is damaged, of another format, declares more weights than it has, or holds NaN or infinity.
    """
    check_local(path)
    if not Path(path).is_file():
        raise FileNotFoundError(f"Model file not found: {Path(path).absolute()}")
    size = Path(path).stat().st_size
    if not zipfile.is_zipfile(path):
        raise ValueError(f"{path} is not a .keras file, or truncated ({size:,} bytes): copy or save it again.")
    try:
        with zipfile.ZipFile(path) as file:
            _check_sizes(file, size)
        model = keras.saving.load_model(path, compile=False)
    except Exception as error:  # zipfile, JSON, h5py and the classes of a file share no class of errors
        reason = str(error).strip().partition("\n")[0] or type(error).__name__
        raise ValueError(
            f"{path} cannot be read as a model of keras_vit: {reason}. It may be damaged: copy or save it again."
        ) from error
    for weight in model.weights:
        if weight.dtype in FLOAT:  # not counters and quantized kernels
            checked(path, weight.path, keras.ops.convert_to_numpy(weight))
    return model


def _check_sizes(file, size):
    """Raises a ValueError if the description declares more weights than the file has: Keras builds the model first."""
    declared = sum(member.file_size for member in file.infolist())
    if declared > MAX_COMPRESSION * size:
        raise ValueError(f"it declares {declared:,} bytes and has {size:,}")
    if file.getinfo("config.json").file_size > MAX_CONFIG_BYTES:
        raise ValueError("its config.json has more than 16 MiB")
    try:
        config = json.loads(file.read("config.json"))
    except RecursionError:
        raise ValueError("its config.json is nested too deeply") from None
    declared = max(map(least_weights, _configs(config)), default=0)
    found = file.getinfo(WEIGHTS).file_size
    if declared > found:  # a weight has at least one byte
        raise ValueError(f"its config.json declares at least {declared:,} weights, its {WEIGHTS} has {found:,} bytes")


def _configs(value):
    """Yields the "config" of a model's description, and of the models in it."""
    for name, part in value.items() if isinstance(value, dict) else ():
        if name == "config" and isinstance(part, dict):
            yield part
        yield from _configs(part)
