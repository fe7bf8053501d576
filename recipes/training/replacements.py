"""What `train` takes in place of a recipe's optimizer, loss and augmentation. B batch, C classes."""

import inspect
import json
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import keras
import numpy as np

from keras_vit.recipes.processes.replicas import ReplicaInvariant, replica_invariant
from keras_vit.recipes.recipe.errors import RecipeError
from keras_vit.recipes.training.losses import OfVectors


@dataclass(frozen=True)
class Replacements:
    """A user's optimizer, loss and augmentation, see `keras_vit.recipes.train`; None for those of the recipe.

    Raises:
        ValueError: An optimizer or augmentation that cannot be called, or an optimizer that exists already.
    """

    optimizer: Callable | None = None
    loss: Callable | str | None = None
    augment: Callable | None = None

    def __post_init__(self):
        existing = isinstance(self.optimizer, keras.optimizers.Optimizer)
        if existing or not (self.optimizer is None or callable(self.optimizer)):
            example = type(self.optimizer).__name__ if existing else "Lion"
            raise ValueError(
                "Expected a class of Keras optimizers, or a function that creates one where the run's devices are "
                f"known: optimizer=keras.optimizers.{example}, or functools.partial(keras.optimizers.{example}, "
                f"epsilon=1e-6). Received: {self.optimizer!r}"
            )
        if not (self.augment is None or callable(self.augment)):
            raise ValueError(
                "Expected augment=FUNCTION of an image (H, W, 3) and a seed (2,), or a layer of Keras. Received: "
                f"{self.augment!r}"
            )

    def create_optimizer(self, arguments: dict, rate_factors, loss_scaling: bool) -> ReplicaInvariant:
        """The optimizer with these arguments of `keras.optimizers.Optimizer`; in the scope of the strategy."""
        create: Any = self.optimizer
        names = ", ".join(arguments)
        fixed = sorted(arguments.keys() & getattr(create, "keywords", {}).keys())
        if fixed:
            raise ValueError(f"The recipe sets {names} of the optimizer: change its fields. Received: {fixed[0]}=...")
        try:
            inspect.signature(create).bind(**arguments)
        except TypeError as error:
            raise ValueError(
                f"Expected an optimizer that takes the recipe's {names}, such as lambda **recipe: "
                f"keras.optimizers.Lion(beta_2=0.98, **recipe). Received: {create!r}: {error}"
            ) from error
        optimizer = create(**arguments)
        if not isinstance(optimizer, keras.optimizers.Optimizer):
            raise ValueError(f"Expected a function that returns a Keras optimizer. It returned: {optimizer!r}")
        return replica_invariant(optimizer, rate_factors, loss_scaling)

    def build_loss(self, recipe, num_classes: int, multi_label: bool) -> Callable | str:
        """The loss for `compile`: of labels (B, C), or of numbers (B,) if it takes only these.

        Raises:
            RecipeError: The recipe smooths labels.
            ValueError: See `fitting_loss`.
        """
        if recipe.label_smoothing:
            raise RecipeError(
                "A loss of your own replaces that of the recipe with its label smoothing.",
                {"label_smoothing": recipe.label_smoothing},
                {"label_smoothing": 0.0},
            )
        return fitting_loss(self.loss, num_classes, only_vectors=multi_label or recipe.data.augment.mixes)

    def fields(self, optimizer=None, model=None) -> dict[str, object]:
        """Names and settings of what replaces parts of a recipe, as in JSON: {} if nothing does.

        Args:
            optimizer: The one that was created; None leaves it out.
            model: The one that is trained: a class of the user's own is a replacement, too. None leaves it out.
        """
        name = keras.saving.get_registered_name(type(model))
        replaced = {} if model is None or name.startswith("keras_vit>") else {"model": name}
        values = {"optimizer": optimizer if self.optimizer else None, "loss": self.loss, "augment": self.augment}
        for field, value in values.items():
            if value is not None:
                replaced[field] = _name(value)
                settings = _settings(value.get_config()) if hasattr(value, "get_config") else {}
                replaced |= {f"{field}.{key}": item for key, item in settings.items()}
        return json.loads(json.dumps(replaced, default=_name))


NOTHING_REPLACED = Replacements()


def fitting_loss(loss, num_classes: int, only_vectors: bool) -> Callable | str:
    """A loss for labels (B, C), and (B,), or if it fails with vectors for numbers (B,) alone.

    Raises:
        ValueError: It fails with both, or with vectors if there are only these.
    """
    wrapped, images = OfVectors(loss), 3 if num_classes != 3 else 4  # not as many as classes
    logits = np.zeros((images, num_classes), "float32")
    reason = _failure(wrapped, np.eye(images, num_classes, dtype="float32"), logits)
    if reason is None:
        return wrapped
    if only_vectors or _failure(loss, np.zeros(images, "int64"), logits) is not None:
        more = "" if only_vectors else " and for numbers (B,)"
        raise ValueError(f"The loss fails for labels (B, C) of logits (B, C){more}: {reason} Received: {loss}")
    return loss


def _failure(loss, labels, logits) -> str | None:
    """Why a loss cannot be computed; None if it can."""
    try:
        function = keras.losses.get(loss)
        values = getattr(function, "call", function)(labels, keras.ops.convert_to_tensor(logits))
    except Exception as error:  # of the user's function
        return f"{type(error).__name__}: {str(error).splitlines()[0] if str(error) else ''}"
    return None if tuple(values.shape) == (len(labels),) else f"its shape is {tuple(values.shape)}, expected (B,)."


def _name(value) -> str:
    if isinstance(value, str):
        return value
    value = getattr(value, "func", value)  # of functools.partial
    name = getattr(value, "__qualname__", type(value).__name__)
    return name if name.endswith(">") else name.rpartition(">")[2]  # "<lambda>"; "package>Registered"


# Names of layers are numbered by Keras, their seeds have no effect, and the others say whether they were called.
OMITTED = ("name", "seed", "build_config", "build_input_shape", "shared_object_id")


def _settings(value):
    """A configuration without `OMITTED`."""
    if isinstance(value, dict):
        return {key: _settings(item) for key, item in value.items() if key not in OMITTED}
    return [_settings(item) for item in value] if isinstance(value, (list, tuple)) else value
