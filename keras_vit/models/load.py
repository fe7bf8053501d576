"""From a checkpoint to a model: `keras_vit.load`."""

import inspect
import os
import zipfile
from dataclasses import asdict, replace
from pathlib import Path

import keras

from keras_vit.images import as_size
from keras_vit.integers import is_integer
from keras_vit.models.axial_resnet import AxialResNet
from keras_vit.models.bit import BiT
from keras_vit.models.h5_weights import is_own, load_own
from keras_vit.models.vit import HEADS, VisionTransformer
from keras_vit.preprocessing import Preprocessing
from keras_vit.weights.files import check_local

KINDS = (VisionTransformer, BiT, AxialResNet)


def load(weights, *, num_classes=None, weights_image_size=None, resample=None, **arguments):
    """Builds the model that a checkpoint was made for and loads its weights, exactly.

    Args:
        weights: A file (.npz, .safetensors, .keras, .weights.h5), a folder with model.safetensors and config.json, the
            folder of a finished run, whose model.keras is taken, "hf:owner/name" on the Hugging Face hub, a published
            name such as "vit/imagenet21k/ViT-B_16", see `keras_vit.weights.published_names()`, or a model of KerasHub
            or tf-models-official in memory. A .weights.h5 of `save_weights` of our models tells its head only: the
            arguments must say all else, and `image_size` be the file's (224 if left out).
        num_classes: By default those of the file. Another number gives a new head of zeros, and drops the file's hidden
            tanh layer, as the paper does for fine-tuning. 0 for no head.
        weights_image_size: Image size that the file was trained at, needed only if its grid of positions is not
            square and no config.json says it.
        resample: How positions are resampled to another `image_size`, see `resample_grid`; by default as the file's
            source does.
        **arguments: What shall differ from the file: `image_size`, `dropout`, `dtype`, `name`, ... of
            `VisionTransformer` or `BiT`. One that the weights exclude, such as another width, is an error; so is one
            that the file's kind of model does not have.

    Returns:
        A `VisionTransformer`, or a `BiT` for a file of a ResNet; an `AxialResNet` from a .keras file of one.

    Raises:
        FileNotFoundError, ValueError, OSError: There is no such checkpoint, it is of no known kind or damaged, or it
            does not fit; the message lists every name and shape that does not.
    """
    if isinstance(weights, str | os.PathLike) and os.path.isfile(os.path.join(weights, "model.keras")):
        weights = os.path.join(weights, "model.keras")
    if str(weights).endswith(".keras"):
        return _load_keras(weights, num_classes, resample, arguments)
    if str(weights).endswith(".weights.h5") and is_own(weights):
        if resample is not None or weights_image_size is not None:
            raise ValueError(f"{weights} is loaded at its own image_size: take model.resized(size, resample) then.")
        return load_own(weights, num_classes, arguments)
    return _load_checkpoint(weights, num_classes, weights_image_size, resample, arguments)


def _load_checkpoint(weights, num_classes, weights_image_size, resample, arguments):
    """A model of what the checkpoint tells about itself, changed by the arguments."""
    from keras_vit.weights import load_weights, open_checkpoint

    checkpoint = open_checkpoint(weights, weights_image_size)
    found = {**checkpoint.arguments, "preprocessing": checkpoint.preprocessing}
    num_classes = found["num_classes"] if num_classes is None else num_classes
    keeps_head = num_classes == found["num_classes"]
    _check_arguments(weights, BiT if checkpoint.is_bit else VisionTransformer, arguments)
    if checkpoint.is_bit:
        fields = found.pop("preprocessing")
        size = as_size(arguments.get("image_size") or 224)
        chosen = {"preprocessing": Preprocessing(size, **fields), **found, **arguments, "num_classes": num_classes}
        model = BiT(**chosen)
        load_weights(model, checkpoint, () if keeps_head else ("head",))
        return model
    if not keeps_head:
        found["representation_size"] = None
    if found["image_size"] is None:
        found["image_size"] = weights_image_size or 224
    found["num_heads"] = checkpoint.num_heads
    chosen = {**found, **arguments, "num_classes": num_classes}
    if chosen["num_heads"] is None:
        raise ValueError(
            f"{checkpoint.tensors.path} does not hold the number of attention heads, and its width of "
            f"{chosen['width']} is of no published model. Say it: num_heads=..."
        )
    fields = found["preprocessing"]
    preprocessing = arguments.get("preprocessing", Preprocessing(as_size(chosen["image_size"]), **fields))
    model = VisionTransformer(**{**chosen, "preprocessing": preprocessing})
    skip = () if keeps_head else tuple(name for name in HEADS if name != "pre_logits" or model.pre_logits is None)
    # What was chosen on purpose is no cause for a warning.
    forms = {name: chosen[name] for name in ("gelu", "epsilon")}
    checkpoint = replace(checkpoint, arguments=checkpoint.arguments | forms)
    load_weights(model, checkpoint, skip, weights_image_size, resample)
    return model


def _load_keras(weights, num_classes, resample, arguments):
    """A model that Keras saved, with another image size or head if wanted."""
    check_local(weights)
    if not Path(weights).is_file():
        raise FileNotFoundError(f"There is no model file {Path(weights).absolute()}.")
    if not zipfile.is_zipfile(weights):
        size = Path(weights).stat().st_size
        raise ValueError(f"{weights} is no .keras file, or cut short ({size:,} bytes): copy it again, or save it anew.")
    try:
        model = keras.saving.load_model(weights, compile=False)
    except (TypeError, KeyError, zipfile.BadZipFile) as error:  # of Keras, for classes that it does not know
        raise ValueError(f"{weights} cannot be read as a model of keras_vit: {error}") from error
    if not isinstance(model, KINDS):
        raise ValueError(f"{weights} holds a {type(model).__name__}. Expected a model of keras_vit.")
    _check_arguments(weights, type(model), arguments)
    size = arguments.pop("image_size", None)
    if any(not _same(model.get_config().get(name), value) for name, value in arguments.items()):
        model = _with_arguments(model, weights, arguments)
    if num_classes is not None and num_classes != model.num_classes:
        model = model.with_head(num_classes)
    if size is not None and as_size(size) != model.image_size:
        if isinstance(model, AxialResNet):
            raise ValueError(f"{weights} is an AxialResNet of {model.image_size} pixels, whose positions fit no other.")
        model = model.resized(size) if isinstance(model, BiT) else model.resized(size, resample or "corners")
    return model


def _check_arguments(weights, kind, arguments):
    """Raises a ValueError for arguments that the file's kind of model does not have."""
    unknown = sorted(set(arguments).difference(_names(kind)))
    if unknown:
        wanted = [other.__name__ for other in KINDS if set(arguments).issubset(_names(other))]
        remedy = f"Wanted: {wanted[0]}; give a file of one." if wanted else f"Known: {', '.join(_names(kind))}."
        raise ValueError(
            f"{weights} is a file of {kind.__name__}, which has no argument {', '.join(unknown)}. {remedy}"
        )


def _names(kind):
    return [*(name for name in inspect.signature(kind).parameters if name != "kwargs"), "name", "dtype", "trainable"]


def _with_arguments(model, weights, arguments):
    """The same weights in a model of other arguments, such as another dropout."""
    from keras_vit.weights.transfer import copy_weights, named_weights

    changed = type(model).from_config({**model.get_config(), **arguments})
    ours, theirs = ({name: tuple(x.shape) for name, x in named_weights(m).items()} for m in (model, changed))
    # Shapes do not depend on the number of heads.
    same_heads = getattr(model.config, "num_heads", None) == getattr(changed.config, "num_heads", None)
    if ours != theirs or not same_heads:
        raise ValueError(f"The weights in {weights} exclude {arguments}. They were saved with {asdict(model.config)}.")
    copy_weights(model, changed)
    return changed


def _same(ours, given):
    return ours == given or (is_integer(given) and ours == (given, given))
