"""From a .keras file to a model with the arguments of `keras_vit.load`."""

from dataclasses import asdict, replace

import keras

from keras_vit.images import as_size
from keras_vit.integers import is_integer
from keras_vit.models.axial_resnet import AxialResNet
from keras_vit.models.bit import BiT
from keras_vit.models.keras_files import read_keras_file
from keras_vit.models.load_arguments import KINDS, check_arguments, check_patch_size


def load_keras(weights, num_classes, resample, arguments):
    """A model that Keras saved, with another image size or head if requested."""
    model = read_keras_file(weights)
    if not isinstance(model, KINDS):
        raise ValueError(f"{weights} contains a {type(model).__name__}. Expected a model of keras_vit.")
    check_arguments(weights, type(model), arguments)
    check_patch_size(weights, getattr(model, "patch_size", None), arguments)
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
