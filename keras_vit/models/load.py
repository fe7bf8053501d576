"""From a checkpoint to a model: `keras_vit.load`."""

import inspect
import math
import os
import warnings
from dataclasses import asdict, replace

import keras

from keras_vit.class_names.files import labels_file, own_class_names, read_class_names
from keras_vit.images import as_size
from keras_vit.integers import is_integer
from keras_vit.models.axial_resnet import AxialResNet
from keras_vit.models.bit import BiT
from keras_vit.models.h5_weights import is_h5_of_our_models, load_h5_weights
from keras_vit.models.habits import check_words
from keras_vit.models.keras_files import read_keras_file
from keras_vit.models.least_weights import least_weights
from keras_vit.models.vit import HEADS, VisionTransformer
from keras_vit.pixel_range import warn_if_assumed
from keras_vit.preprocessing import Preprocessing
from keras_vit.trained import local_folder

KINDS = (VisionTransformer, BiT, AxialResNet)


class ImageSizeWarning(UserWarning):
    """The size of a model's images was assumed."""


def load(weights, *, num_classes=None, weights_image_size=None, resample=None, preprocessing=None, **arguments):
    """Builds the model of a checkpoint and loads its weights exactly.

    Args:
        weights: A file (.npz, .safetensors, .keras, .weights.h5), a folder with model.safetensors and config.json, the
            folder of a finished run, whose model.keras is loaded, "hf:owner/name" on the Hugging Face hub, a published
            name such as "vit/imagenet21k/ViT-B_16", see `keras_vit.weights.published_names()`, a name of
            `keras_vit.weights.packaged_names()`, which needs no download, or a model of KerasHub or tf-models-official
            in memory. A .weights.h5 of `model.save_weights` holds no configuration: pass the model's arguments, and its
            `image_size` (by default 224).
        num_classes: By default that of the file. Another number replaces the head by zeros and removes the file's
            hidden tanh layer, as the paper does for fine-tuning. 0 for no head.
        weights_image_size: Image size of the checkpoint in pixels, required only if its grid of positions is not square
            and no config.json specifies it.
        resample: How positions are resampled to another `image_size`, see `resample_grid`; by default as in the source
            of the checkpoint.
        preprocessing: How images are prepared, if it is not as the checkpoint states, or as is assumed where it states
            nothing: "imagenet", "clip" or "half" for the mean and standard deviation of ImageNet or CLIP, or 0.5; a
            dict of some fields of `Preprocessing`; or a `Preprocessing`, whose image size is replaced by the model's.
        **arguments: Arguments of `VisionTransformer` or `BiT` that differ from the checkpoint: `image_size`, `dropout`,
            `dtype`, `name`, ... Arguments that do not fit the weights, such as another width, are errors, and so are
            those that the checkpoint's model does not have. `dtype` is by default Keras's global dtype policy, float32
            unless set, whatever the precision of the checkpoint.

    Returns:
        A `VisionTransformer`, or a `BiT` for a file of a ResNet; an `AxialResNet` from a .keras file of one.

    Raises:
        FileNotFoundError, ValueError, OSError: The checkpoint does not exist, is of unknown kind or damaged, or does
            not fit; the message lists every name and shape that does not.

    Warns:
        PixelRangeWarning: Mean and standard deviation of the pixels are neither stated by the checkpoint nor given.
        ImageSizeWarning: `image_size` is neither stated by the checkpoint nor given, and 224 was assumed.
    """
    weights = local_folder(weights)
    given = arguments.get("class_names")
    Preprocessing.from_argument(preprocessing, 224)  # raises before anything is read
    model = _load(weights, num_classes, weights_image_size, resample, arguments)
    if given is None and isinstance(weights, str | os.PathLike):
        # A file of names beside the weights can be edited, and formats other than .keras hold no names.
        model.class_names = _names_beside(weights, num_classes, model) or model.class_names
    model.preprocessing = preprocessing
    warn_if_assumed(weights, model.preprocessing)
    return model


def _names_beside(weights, num_classes, model):
    """Class names beside the weights; None without any, or if `num_classes` replaced their head."""
    if num_classes is None:
        return own_class_names(weights, model.num_classes)
    file = labels_file(weights)
    names = read_class_names(file) if num_classes and file.is_file() else ()
    return names if len(names) == num_classes else None


def _load(weights, num_classes, weights_image_size, resample, arguments):
    if isinstance(weights, str | os.PathLike) and os.path.isfile(os.path.join(weights, "model.keras")):
        weights = os.path.join(weights, "model.keras")
    if str(weights).endswith(".keras"):
        if weights_image_size is not None:
            raise ValueError(f"{weights} states the image size of its weights: omit weights_image_size.")
        return _load_keras(weights, num_classes, resample, arguments)
    if str(weights).endswith(".weights.h5") and is_h5_of_our_models(weights):
        if resample is not None or weights_image_size is not None:
            raise ValueError(
                f"{weights} is loaded at its own image_size: use model.resized(size, resample) afterwards."
            )
        return load_h5_weights(weights, num_classes, arguments)
    return _load_checkpoint(weights, num_classes, weights_image_size, resample, arguments)


def _load_checkpoint(weights, num_classes, weights_image_size, resample, arguments):
    """The model that the checkpoint describes, changed by the arguments."""
    from keras_vit.weights import load_weights, open_checkpoint

    checkpoint = open_checkpoint(weights, weights_image_size)
    found = {**checkpoint.arguments, "preprocessing": checkpoint.preprocessing}
    num_classes = found["num_classes"] if num_classes is None else num_classes
    keeps_head = num_classes == found["num_classes"]
    _check_arguments(weights, BiT if checkpoint.is_bit else VisionTransformer, arguments)
    _check_patch_size(weights, found.get("patch_size"), arguments)
    _check_size(checkpoint, arguments)
    if checkpoint.is_bit:
        fields = found.pop("preprocessing")
        size = as_size(arguments.get("image_size") or 224)
        chosen = {**found, **arguments, "preprocessing": Preprocessing(size, **fields), "num_classes": num_classes}
        model = BiT(**chosen)
        load_weights(model, checkpoint, () if keeps_head else ("head",))
        return model
    if not keeps_head:
        found |= {"representation_size": None, "class_names": None, "multi_label": False, "projection": False}
    if found["image_size"] is None and found["position_embedding"] == "sincos_2d" and not weights_image_size:
        _warn_of_size(checkpoint.tensors.path, arguments)
    found["image_size"] = checkpoint.image_size or found["image_size"] or weights_image_size or 224
    found["num_heads"] = checkpoint.num_heads
    chosen = {**found, **arguments, "num_classes": num_classes}
    if chosen["num_heads"] is None:
        raise ValueError(
            f"{checkpoint.tensors.path} does not specify the number of attention heads, and no published model has its "
            f"width of {chosen['width']}. Pass num_heads=..."
        )
    if chosen["gelu"] is None:
        raise ValueError(
            f"{checkpoint.tensors.path} does not specify its GELU: there is no open_clip_config.json beside it. Pass "
            'gelu="quick" for OpenAI\'s CLIP, or "erf" for those of LAION and others.'
        )
    try:
        preprocessing = Preprocessing(as_size(chosen["image_size"]), **found["preprocessing"])
        model = VisionTransformer(**{**chosen, "preprocessing": preprocessing})
    except (TypeError, AttributeError, ArithmeticError) as error:
        raise ValueError(
            f"The description of {checkpoint.tensors.path}, such as its config.json, or an argument has a value of "
            f"another type: {error}"
        ) from error
    skip = () if keeps_head else tuple(name for name in HEADS if name != "pre_logits" or model.pre_logits is None)
    # Values that the caller chose should not cause a warning.
    forms = {name: chosen[name] for name in ("gelu", "epsilon")}
    checkpoint = replace(checkpoint, arguments=checkpoint.arguments | forms)
    load_weights(model, checkpoint, skip, weights_image_size, resample)
    return model


def _warn_of_size(path, arguments):
    """Warns if the image size is a guess: sine and cosine positions, which files omit, fit all sizes."""
    from keras_vit.weights.published import is_published

    if "image_size" not in arguments and not is_published(path):
        warnings.warn(
            f"{path.name} does not state the size of its images. Assumed: 224 pixels. If you know another, pass "
            "image_size=...",
            ImageSizeWarning,
            stacklevel=5,
        )


def _check_size(checkpoint, arguments):
    """Raises a ValueError if the checkpoint's description declares more weights than the file has."""
    described = checkpoint.arguments
    if arguments.keys() & {"image_size", "patch_size"}:  # the caller's grid, not the file's
        described = {**described, "image_size": None}
    found = sum(math.prod(shape) for shape in checkpoint.tensors.shapes.values())
    try:
        declared = least_weights({"patch_size": 1, **described})
    except TypeError:  # reported where the model is built
        return
    if declared > found:
        raise ValueError(
            f"{checkpoint.tensors.path} has {found:,} weights, fewer than the {declared:,} that its names, shapes or "
            "config.json declare: download it again, and check image_size in config.json."
        )


def _check_patch_size(weights, own, arguments):
    """Raises a ValueError for another patch size than the checkpoint's."""
    given = arguments.get("patch_size")
    if None not in (own, given) and as_size(given, "patch_size") != as_size(own):
        raise ValueError(
            f"{weights} has patches of {own} pixels. Received: patch_size={given}. Load it without patch_size and "
            f"resize its patch embedding: model.with_patch_size({given})"
        )


def _load_keras(weights, num_classes, resample, arguments):
    """A model that Keras saved, with another image size or head if requested."""
    model = read_keras_file(weights)
    if not isinstance(model, KINDS):
        raise ValueError(f"{weights} contains a {type(model).__name__}. Expected a model of keras_vit.")
    _check_arguments(weights, type(model), arguments)
    _check_patch_size(weights, getattr(model, "patch_size", None), arguments)
    size, names = arguments.pop("image_size", None), arguments.pop("class_names", model.class_names)
    dtype = keras.dtype_policies.get(arguments.pop("dtype", keras.config.dtype_policy()))
    changes = any(not _same(model.get_config().get(name), value) for name, value in arguments.items())
    if changes or model.dtype_policy != dtype:
        model = _with_arguments(model, weights, arguments, dtype)
    if num_classes not in (None, model.num_classes):
        model = model.with_head(num_classes, None if names == model.class_names else names)
    elif names != model.class_names:
        model.class_names = names
    if size is not None and as_size(size) != model.image_size:
        if isinstance(model, AxialResNet):
            raise ValueError(
                f"{weights} is an AxialResNet of {model.image_size} pixels, whose positions fit no other size."
            )
        model = model.resized(size) if isinstance(model, BiT) else model.resized(size, resample or "corners")
    return model


def _check_arguments(weights, kind, arguments):
    """Raises a ValueError for arguments that the checkpoint's model does not have."""
    check_words(arguments)
    unknown = sorted(set(arguments).difference(_names(kind)))
    if unknown:
        fitting = [other.__name__ for other in KINDS if set(arguments).issubset(_names(other))]
        fix = f"Expected a checkpoint of {fitting[0]}." if fitting else f"Known: {', '.join(_names(kind))}."
        raise ValueError(
            f"{weights} is a checkpoint of {kind.__name__}, which has no argument {', '.join(unknown)}. {fix}"
        )


def _names(kind):
    return [*(name for name in inspect.signature(kind).parameters if name != "kwargs"), "name", "dtype", "trainable"]


def _with_arguments(model, weights, arguments, dtype):
    """The same weights in a model with other arguments, such as another dropout, or another precision."""
    from keras_vit.weights.transfer import copy_weights, named_weights

    changed = type(model).from_config({**model.get_config(), **arguments, "dtype": dtype})
    ours, theirs = ({name: tuple(x.shape) for name, x in named_weights(m).items()} for m in (model, changed))
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
