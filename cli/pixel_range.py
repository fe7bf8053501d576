"""`--mean` and `--std` of commands that load weights without a description of their pixels."""

import warnings

Channels = tuple[float, float, float]


def load_with_pixel_range(weights, mean: Channels | None, std: Channels | None, **arguments):
    """`keras_vit.load`, with another mean or standard deviation of the model's `preprocessing` if given.

    Raises:
        ValueError: A standard deviation that is not above 0, and the errors of `load`.
    """
    from keras_vit import load
    from keras_vit.weights.transfer import copy_weights

    changes = {name: value for name, value in (("mean", mean), ("std", std)) if value is not None}
    with warnings.catch_warnings():
        if len(changes) == 2:  # nothing is assumed
            warnings.filterwarnings("ignore", message=".*mean and std 0.5 assumed")
        model = load(weights, **arguments)
    if not changes:
        return model
    preprocessing = {**model.preprocessing.get_config(), **changes}
    changed = type(model).from_config({**model.get_config(), "preprocessing": preprocessing})
    copy_weights(model, changed)
    return changed
