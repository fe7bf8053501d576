"""Files that `save_weights` of our models wrote: numbers in an order, without the model that they are of."""

import inspect

from keras_vit.models.bit import BiT
from keras_vit.models.vit import VisionTransformer


def is_own(path) -> bool:
    """Whether `save_weights` of a model of ours wrote the file, and not KerasHub."""
    import h5py

    try:
        with h5py.File(path) as file:
            return any(part in file for part in ("encoder/blocks", "backbone/blocks"))
    except OSError:  # not there or damaged: said where all files are opened
        return False


def load_own(weights, num_classes, arguments):
    """The model of these arguments with the file's weights; only the head's size is told by the file.

    Raises:
        ValueError: The arguments do not say the model, or the file is of another.
    """
    kind = BiT if "stages" in arguments else VisionTransformer
    arguments.setdefault("image_size", 224)
    missing = [name for name in _needed(kind) if name not in arguments]
    if missing:
        raise ValueError(
            f"{weights} holds the weights of a model of keras_vit, but not which; {', '.join(missing)} are not said. "
            "Name it, such as keras_vit.ViT_B16(weights=...) or keras_vit.BiT_R50x1(weights=...), or save whole models "
            "with model.save('name.keras')."
        )
    classes, arrays = _contents(weights)
    model = kind(**{**arguments, "num_classes": classes})
    other = (
        f"{weights} holds other weights than a {kind.__name__} of {arguments}. If only image_size differs, load it at "
        "its own and take model.resized(size)."
    )
    if arrays != len(model.weights):  # Keras leaves what is too much
        raise ValueError(f"{other} The file has {arrays} arrays, the model {len(model.weights)}.")
    try:
        model.load_weights(weights)
    except ValueError as error:  # of Keras, which names a layer
        raise ValueError(f"{other} {error}") from error
    return model if num_classes in (None, model.num_classes) else model.with_head(num_classes)


def _needed(kind):
    parameters = inspect.signature(kind).parameters.values()
    return [one.name for one in parameters if one.default is one.empty and one.kind is not one.VAR_KEYWORD]


def _contents(path):
    """Classes of the head, 0 without one, and the number of arrays but those of an optimizer."""
    import h5py

    names = []
    with h5py.File(path) as file:
        classes = file["head/vars/0"].shape[1] if "head/vars/0" in file else 0
        file.visititems(lambda name, found: names.append(name) if isinstance(found, h5py.Dataset) else None)
    return classes, sum(not name.startswith("optimizer/") for name in names)
