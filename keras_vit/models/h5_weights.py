"""Loads .weights.h5 files of `model.save_weights`: ordered arrays, without the configuration of their model."""

import inspect

from keras_vit.models.bit import BiT
from keras_vit.models.vit import VisionTransformer


def is_h5_of_our_models(path) -> bool:
    """Whether `save_weights` of a model of keras_vit wrote the file, not one of KerasHub."""
    import h5py

    try:
        with h5py.File(path) as file:
            return any(part in file for part in ("encoder/blocks", "backbone/blocks"))
    except OSError:  # missing or damaged: reported where all files are opened
        return False


def load_h5_weights(weights, num_classes, arguments):
    """Builds the model from these arguments and loads the file's weights; the number of classes is the file's.

    Raises:
        ValueError: Required arguments are missing, or the weights belong to another model.
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
    except ValueError as error:  # Keras names a layer
        raise ValueError(f"{other} {error}") from error
    return model if num_classes in (None, model.num_classes) else model.with_head(num_classes)


def _required(kind):
    parameters = inspect.signature(kind).parameters.values()
    return [one.name for one in parameters if one.default is one.empty and one.kind is not one.VAR_KEYWORD]


def _contents(path):
    """Number of classes, 0 without a head, and number of arrays without those of an optimizer."""
    import h5py

    names = []
    with h5py.File(path) as file:
        classes = file["head/vars/0"].shape[1] if "head/vars/0" in file else 0
        file.visititems(lambda name, found: names.append(name) if isinstance(found, h5py.Dataset) else None)
    return classes, sum(not name.startswith("optimizer/") for name in names)
