"""Our weights under the names of a source, and what a source's format cannot store."""

from collections.abc import Callable

import numpy as np

from keras_vit.name_list import first_names
from keras_vit.named_weights import named_weights
from keras_vit.weights.naming import Naming


def named_arrays(model, naming: Naming, rename: Callable[[str], str] = lambda name: name) -> dict[str, np.ndarray]:
    """All weights of a model as arrays of `array_dtype` under `rename` of the source's names.

    Raises:
        ValueError: The source has no name for a weight.
    """
    from keras import ops

    arrays: dict[str, np.ndarray] = {}
    unnamed = []
    for name, variable in named_weights(model).items():
        targets = naming.source_arrays(name, variable.shape, getattr(model.config, "num_heads", None))
        if not targets[0].is_known:
            unnamed.append(name)
            continue
        values = naming.to_source(ops.convert_to_numpy(variable).astype(array_dtype(model)), targets)
        arrays |= {rename(target.name): value for target, value in zip(targets, values)}
    if unnamed:
        raise ValueError(f"The format cannot store {first_names(unnamed)}.")
    return arrays


def array_dtype(model) -> str:
    """ "float16" for a model in float16, else "float32": NumPy has no bfloat16."""
    return "float16" if model.variable_dtype == "float16" else "float32"


# Arguments that do not change the shapes of weights: these fit a model with another value, too.
WITHOUT_TRACE = ("gelu", "epsilon", "pooling")


def check_values(model, format_name: str, **allowed: tuple):
    """Raises a ValueError if an argument has a value that the format cannot store.

    Args:
        model: A VisionTransformer.
        format_name: Start of the message.
        **allowed: The values that the format implies, by the argument's name.
    """
    for name, values in allowed.items():
        if getattr(model.config, name) not in values:
            other = f", or load it with {name}={values[0]!r} if the weights were trained that way"
            raise ValueError(
                f"{format_name} cannot store {name}={getattr(model.config, name)!r}, only "
                f"{' or '.join(map(repr, values))}. Save the model as .keras{other if name in WITHOUT_TRACE else ''}."
            )
