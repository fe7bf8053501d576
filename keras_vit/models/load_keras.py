"""Reads what Keras saved, .keras and .weights.h5 files, which may be damaged or hostile, for `keras_vit.load`."""

import inspect
import json
import os
import re
import zipfile
from pathlib import Path

import keras

from keras_vit.images import as_size, is_integer
from keras_vit.keras_internals import set_trainable
from keras_vit.models.bit import BiT
from keras_vit.models.load_checks import KINDS, least_weights
from keras_vit.models.vit import VisionTransformer
from keras_vit.weights.files import MAX_COMPRESSION, check_local, checked
from keras_vit.weights.hdf5 import h5_arrays, open_h5

WEIGHTS = "model.weights.h5"
# Its parts are repeated by Keras for each layer; ours has a few kilobytes.
MAX_CONFIG_BYTES = 16 << 20
FLOAT = ("float16", "bfloat16", "float32", "float64")


def read_model(weights):
    """The model of keras_vit in a .keras file."""
    model = read_keras_file(weights)
    if not isinstance(model, KINDS):
        raise ValueError(
            f"{weights} contains a {type(model).__name__}. Expected a model of keras_vit. Open the file by "
            "keras.saving.load_model(file). If there is a model of keras_vit inside, pass the whole to functions of "
            "keras_vit, or take out one layer: model.get_layer(name). If not, save it as a keras_vit.ImageClassifier."
        )
    return model


def read_keras_file(path):
    """The model that Keras saved, of any class that Keras finds."""
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
        if missing := re.search(r"Could not locate class '(\w+)'", str(error)):
            raise ValueError(f"{path} contains a {missing[1]}. Import the package that defines it first.") from error
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
    num_bytes = file.getinfo(WEIGHTS).file_size
    if declared > num_bytes:  # a weight has at least one byte
        raise ValueError(
            f"its config.json declares at least {declared:,} weights, its {WEIGHTS} has {num_bytes:,} bytes"
        )


def _configs(value):
    """Yields the "config" of each model of keras_vit in a description; layers of others have arguments of their own."""
    if isinstance(value, dict):
        name = str(value.get("registered_name", "keras_vit>"))
        if name.startswith("keras_vit>") and isinstance(value.get("config"), dict):
            yield value["config"]
    for part in value.values() if isinstance(value, dict) else value if isinstance(value, list) else ():
        yield from _configs(part)


def changed(model, weights, num_classes, resample, arguments):
    """The model that was read from a file, with these arguments, such as another image size or head."""
    size, names = arguments.pop("image_size", None), arguments.pop("class_names", model.class_names)
    dtype = arguments.pop("dtype", None)
    if dtype is not None or not isinstance(model.dtype_policy, keras.dtype_policies.DTypePolicyMap):  # which stays
        dtype = keras.dtype_policies.get(dtype)  # None: the global one
    trainable = arguments.pop("trainable", None)
    changes = any(not _same(model.get_config().get(name), value) for name, value in arguments.items())
    if changes or (dtype and model.dtype_policy != dtype):
        model = model._with_arguments(weights, arguments, dtype)
    if trainable is not None:  # of the whole model, whatever the file says of its parts
        set_trainable(model, trainable)
    if num_classes not in (None, model.num_classes):
        model = model.with_head(num_classes, None if names == model.class_names else names, name=model.name)
    elif names != model.class_names:
        model.class_names = names
    if size is not None and as_size(size) != model.image_size:
        options = {"resample": resample} if resample and hasattr(model, "patch_size") else {}
        model = model.resized(size, name=model.name, **options)
    return model


def _same(ours, given):
    """Whether values of an argument are equal; an integer equals the size (height, width) of that integer."""
    return ours == given or (is_integer(given) and ours == (given, given))


def load_h5(path, num_classes, resizes: bool, arguments):
    """The model of these arguments with the weights of a file of `save_weights`, which does not describe its model.

    Its number of classes is the file's. None for a file that no model of keras_vit wrote, as those of KerasHub.
    """
    if not os.path.isfile(path):  # reported where all files are opened
        return None
    kind = BiT if "stages" in arguments else VisionTransformer
    parameters = inspect.signature(kind).parameters.values()
    with open_h5(path) as file:
        if not any(part in file for part in ("encoder/blocks", "backbone/blocks")):
            return None
        if resizes:
            raise ValueError(f"{path} is loaded at its own image_size: use model.resized(size, resample) afterwards.")
        arguments.setdefault("image_size", 224)
        required = [p for p in parameters if p.default is p.empty and p.kind is not p.VAR_KEYWORD]
        missing = [p.name for p in required if p.name not in arguments]
        if missing:
            raise ValueError(
                f"{path} contains the weights of a model of keras_vit, but not its configuration. Missing: "
                f"{', '.join(missing)}. Name the model, such as keras_vit.ViT_B16(weights=...) or "
                "keras_vit.BiT_R50x1(weights=...), or save whole models by model.save('name.keras')."
            )
        arrays = {name: array for name, array in h5_arrays(file).items() if not name.startswith("optimizer/")}
        for name, array in arrays.items():  # the format has no checksums, but a damaged number is often not finite
            if array.dtype.kind in "fV":  # others are states of random generators
                checked(path, name, array[()])
        classes = file["head/vars/0"].shape[1] if "head/vars/0" in file else 0
    model = kind(**{**arguments, "num_classes": classes})
    other = (
        f"{path} does not hold the weights of a {kind.__name__} of {arguments}. If only image_size differs, load it "
        "at its own image_size and use model.resized(size)."
    )
    if len(arrays) != len(model.weights):  # Keras ignores surplus arrays
        raise ValueError(f"{other} The file has {len(arrays)} arrays, the model {len(model.weights)}.")
    try:
        model.load_weights(path)
    except Exception as error:  # Keras names a layer; h5py has no class of errors for damaged files
        raise ValueError(f"{other} {error}") from error
    return model if num_classes in (None, model.num_classes) else model.with_head(num_classes, name=model.name)
