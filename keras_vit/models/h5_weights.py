"""Loads .weights.h5 files of `model.save_weights`: ordered arrays, without the configuration of their model."""

import inspect
import os

from keras_vit.models.bit import BiT
from keras_vit.models.vit import VisionTransformer
from keras_vit.weights.files import checked
from keras_vit.weights.hdf5 import h5_arrays, open_h5


def is_h5_of_our_models(path) -> bool:
    """Whether `save_weights` of a model of keras_vit wrote the file, not one of KerasHub.

    Raises:
        ValueError: The file is damaged.
    """
    if not os.path.isfile(path):  # reported where all files are opened
        return False
    with open_h5(path) as file:
        return any(part in file for part in ("encoder/blocks", "backbone/blocks"))


def load_h5_weights(weights, num_classes, arguments):
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
    return [one.name for one in parameters if one.default is one.empty and one.kind is not one.VAR_KEYWORD]


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
