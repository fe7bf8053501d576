"""Notices losses that take the models' logits for probabilities."""

import inspect

import keras


def check_loss(model):
    """Raises a ValueError if a model with a head is compiled with a loss of probabilities.

    Such a loss clips logits to [0, 1]. A new head, which starts at zeros, would have no gradient and never learn.
    """
    losses = keras.tree.flatten(getattr(model, "loss", None))  # Keras reports a model that was not compiled
    loss = next(filter(_of_probabilities, losses), None)
    own = type(model).__module__.startswith("keras_vit.")  # outputs of a subclass may be probabilities
    if not own or not model.num_classes or loss is None:
        return
    name = loss if isinstance(loss, str) else getattr(loss, "__name__", type(loss).__name__)
    fix = "".join(word.title() for word in name.split("_")) if name.islower() else name
    raise ValueError(
        "The model's outputs are logits. Expected a loss of logits, such as "
        f"keras.losses.{fix}(from_logits=True). Received: {name} without from_logits=True. Compile the model again."
    )


def _of_probabilities(loss) -> bool:
    """Whether a loss of Keras, by name, function or instance, expects probabilities."""
    if isinstance(loss, str):
        try:
            loss = keras.losses.get(loss)
        except ValueError:  # reported by Keras, which knows all names
            return False
    if inspect.isfunction(loss):
        parameter = inspect.signature(loss).parameters.get("from_logits")
        return parameter is not None and parameter.default is False
    config = loss.get_config() if isinstance(loss, keras.losses.Loss) else {}
    return config.get("from_logits", True) is False
