"""From a checkpoint to a model: `keras_vit.load`."""

import inspect
import os

from keras_vit.class_names.files import labels_file, own_class_names, read_class_names
from keras_vit.models.bit import BiT
from keras_vit.models.load_checkpoint import load_checkpoint
from keras_vit.models.load_keras import load_keras
from keras_vit.models.vit import VisionTransformer
from keras_vit.pixel_range import warn_if_assumed
from keras_vit.preprocessing import Preprocessing
from keras_vit.trained import local_folder
from keras_vit.weights.files import checked
from keras_vit.weights.hdf5 import h5_arrays, open_h5


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
    names = arguments.get("class_names")
    Preprocessing.from_argument(preprocessing, 224)  # raises before anything is read
    model = _load(weights, num_classes, weights_image_size, resample, arguments)
    if names is None and isinstance(weights, str | os.PathLike):
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
        return load_keras(weights, num_classes, resample, arguments)
    if str(weights).endswith(".weights.h5") and _is_ours(weights):
        if resample is not None or weights_image_size is not None:
            raise ValueError(
                f"{weights} is loaded at its own image_size: use model.resized(size, resample) afterwards."
            )
        return _load_h5(weights, num_classes, arguments)
    return load_checkpoint(weights, num_classes, weights_image_size, resample, arguments)


# .weights.h5 files of `model.save_weights`: ordered arrays, without the configuration of their model.


def _is_ours(path) -> bool:
    """Whether `save_weights` of a model of keras_vit wrote the file, not one of KerasHub.

    Raises:
        ValueError: The file is damaged.
    """
    if not os.path.isfile(path):  # reported where all files are opened
        return False
    with open_h5(path) as file:
        return any(part in file for part in ("encoder/blocks", "backbone/blocks"))


def _load_h5(weights, num_classes, arguments):
    """Builds the model from these arguments and loads the file's weights; the number of classes is the file's.

    Raises:
        ValueError: Required arguments are missing, the weights belong to another model, or the file is damaged.
    """
    kind = BiT if "stages" in arguments else VisionTransformer
    arguments.setdefault("image_size", 224)
    missing = [name for name in _required(kind) if name not in arguments]
    if missing:
        raise ValueError(
            f"{weights} contains the weights of a model of keras_vit, but not its configuration. Missing: "
            f"{', '.join(missing)}. Name the model, such as keras_vit.ViT_B16(weights=...) or "
            "keras_vit.BiT_R50x1(weights=...), or save whole models by model.save('name.keras')."
        )
    classes, arrays = _contents(weights)
    model = kind(**{**arguments, "num_classes": classes})
    other = (
        f"{weights} does not hold the weights of a {kind.__name__} of {arguments}. If only image_size differs, load it "
        "at its own image_size and use model.resized(size)."
    )
    if arrays != len(model.weights):  # Keras ignores surplus arrays
        raise ValueError(f"{other} The file has {arrays} arrays, the model {len(model.weights)}.")
    try:
        model.load_weights(weights)
    except Exception as error:  # Keras names a layer; h5py has no class of errors for damaged files
        raise ValueError(f"{other} {error}") from error
    return model if num_classes in (None, model.num_classes) else model.with_head(num_classes)


def _required(kind):
    parameters = inspect.signature(kind).parameters.values()
    return [p.name for p in parameters if p.default is p.empty and p.kind is not p.VAR_KEYWORD]


def _contents(path):
    """Number of classes, 0 without a head, and number of arrays without those of an optimizer.

    Reads all of them: the format has no checksums, but a damaged number is often not finite.
    """
    with open_h5(path) as file:
        arrays = {name: array for name, array in h5_arrays(file).items() if not name.startswith("optimizer/")}
        for name, array in arrays.items():
            if array.dtype.kind in "fV":  # others are states of random generators
                checked(path, name, array[()])
        classes = file["head/vars/0"].shape[1] if "head/vars/0" in file else 0
        return classes, len(arrays)
