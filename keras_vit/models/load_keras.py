"""Reads .keras files, which may be damaged or hostile, as models with the arguments of `keras_vit.load`."""

import inspect
import json
import re
import zipfile
from dataclasses import asdict, replace
from pathlib import Path

import keras

from keras_vit.images import as_size, is_integer
from keras_vit.keras_internals import set_trainable
from keras_vit.models.axial_resnet import AxialResNet
from keras_vit.models.bit import BiT
from keras_vit.models.image_classifier import ImageClassifier
from keras_vit.models.vit import VisionTransformer
from keras_vit.weights.files import MAX_COMPRESSION, check_local, checked

WEIGHTS = "model.weights.h5"
# Its parts are repeated by Keras for each layer; ours has a few kilobytes.
MAX_CONFIG_BYTES = 16 << 20
FLOAT = ("float16", "bfloat16", "float32", "float64")


def load_keras(weights, num_classes, resample, arguments):
    """A model that Keras saved, with another image size or head if requested."""
    model = read_keras_file(weights)
    if not isinstance(model, KINDS):
        raise ValueError(
            f"{weights} contains a {type(model).__name__}. Expected a model of keras_vit. Open the file by "
            "keras.saving.load_model(file). If there is a model of keras_vit inside, pass the whole to functions of "
            "keras_vit, or take out one layer: model.get_layer(name). If not, save it as a keras_vit.ImageClassifier."
        )
    check_arguments(weights, type(model), arguments)
    check_patch_size(weights, getattr(model, "patch_size", None), arguments)
    size, names = arguments.pop("image_size", None), arguments.pop("class_names", model.class_names)
    dtype = arguments.pop("dtype", None)
    if dtype is not None or not isinstance(model.dtype_policy, keras.dtype_policies.DTypePolicyMap):  # which stays
        dtype = keras.dtype_policies.get(dtype)  # None: the global one
    trainable = arguments.pop("trainable", None)
    changes = any(not _same(model.get_config().get(name), value) for name, value in arguments.items())
    if changes or (dtype and model.dtype_policy != dtype):
        model = _with_arguments(model, weights, arguments, dtype)
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


def _with_arguments(model, weights, arguments, dtype):
    """The same weights in a model with other arguments, such as another dropout, or another precision."""
    from keras_vit.models.copying import copy_weights
    from keras_vit.named_weights import first_kernel, named_weights

    config = {**model.get_config(), **arguments}
    if dtype and model.dtype_policy != dtype:
        config["dtype"] = dtype
        for settings in config.get("inner_layers", {}).values():
            settings.pop("dtype", None)
    changed = type(model).from_config(config)
    ours, theirs = ({name: tuple(x.shape) for name, x in named_weights(m).items()} for m in (model, changed))
    if kernel := first_kernel(ours):  # whose channels are adapted
        ours[kernel], theirs[kernel] = ((*shapes[kernel][:2], shapes[kernel][3]) for shapes in (ours, theirs))
    # Shapes do not depend on the number of heads.
    same_heads = getattr(model.config, "num_heads", None) == getattr(changed.config, "num_heads", None)
    if ours != theirs or not same_heads:
        raise ValueError(
            f"{arguments} does not fit the weights in {weights}. They were saved with "
            f"{asdict(replace(model.config, class_names=None))}."
        )
    copy_weights(model, changed)
    return changed


def _same(ours, given):
    """Whether values of an argument are equal; an integer equals the size (height, width) of that integer."""
    return ours == given or (is_integer(given) and ours == (given, given))


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


def least_weights(arguments: dict) -> int:
    """A lower bound of the number of weights of a VisionTransformer, BiT or AxialResNet, without building it.

    With LoRA, whose matrices are not in a file, it is still one: they are smaller than the kernels.
    """
    width, depth, stages = arguments.get("width", 0), arguments.get("depth", 0), arguments.get("stages")
    classes = arguments.get("num_classes", 0)
    if stages:  # one kernel of each unit, and the head, at the width of the first stage
        filters = 32 * arguments.get("width_factor", 1)
        return int(filters * (sum(stages) * filters + classes))
    if not depth or "patch_size" not in arguments:  # of a layer of these models
        return 0
    total = depth * width * (4 * width + 2 * arguments.get("mlp_dim", 0)) + width * arguments.get("register_tokens", 0)
    total += width * sum(settings.get("lora_rank", 0) for settings in arguments.get("inner_layers", {}).values())
    hidden = arguments.get("representation_size")
    total += hidden * (width + classes) if hidden else width * classes
    height, columns = as_size(arguments["patch_size"], "patch_size")
    if arguments.get("resnet_stages") is None:
        total += arguments.get("channels", 3) * height * columns * width
    size = arguments.get("image_size")
    if size is not None and arguments.get("position_embedding", "learned_1d") == "learned_1d":
        rows, pixels = as_size(size)
        total += rows // height * (pixels // columns) * width
    return total


KINDS = (VisionTransformer, BiT, AxialResNet, ImageClassifier)


def check_arguments(weights, kind, arguments):
    """Raises a ValueError for arguments that the checkpoint's model does not have."""
    unknown = sorted(set(arguments).difference(_names(kind)))
    if unknown:
        fitting = [other.__name__ for other in KINDS if set(arguments).issubset(_names(other))]
        fix = f"Expected a checkpoint of {fitting[0]}." if fitting else f"Known: {', '.join(_names(kind))}."
        raise ValueError(
            f"{weights} is a checkpoint of {kind.__name__}, which has no argument {', '.join(unknown)}. {fix}"
        )


def check_patch_size(weights, own, arguments):
    """Raises a ValueError for another patch size than the checkpoint's."""
    patch_size = arguments.get("patch_size")
    if None not in (own, patch_size) and as_size(patch_size, "patch_size") != as_size(own):
        raise ValueError(
            f"{weights} has patches of {own} pixels. Received: patch_size={patch_size}. Load it without patch_size and "
            f"resize its patch embedding: model.with_patch_size({patch_size})"
        )


def _names(kind):
    return [*(name for name in inspect.signature(kind).parameters if name != "kwargs"), "name", "dtype", "trainable"]
