"""Configurations: frozen dataclasses whose fields are the keyword arguments of layers and models."""

import inspect
from collections.abc import Callable
from dataclasses import dataclass, fields
from functools import wraps
from numbers import Integral

REMAT = (None, "mlp", "attention", "block")


@dataclass(frozen=True, kw_only=True)
class BlockConfig:
    """The configuration that all blocks of an encoder share.

    Args:
        num_heads: Number of attention heads, K; must divide the width.
        mlp_dim: Hidden width of the MLP.
        dropout: Rate after the attention's output projection and after both Dense layers of the MLP.
        attention_dropout: Rate on the attention weights; 0 in every published configuration.
        gelu: "tanh", "erf" or "quick", see `Mlp`.
        swiglu: Whether the MLP is gated, see `Mlp`.
        epsilon: Epsilon of the layer normalizations; 1e-6 in the paper's code.
        layer_scale: Initial value of the factors on both residual branches, see `LayerScale`; None disables it.
        qk_norm, relative_positions, rotary_positions: See `SelfAttention`.
    """

    num_heads: int
    mlp_dim: int
    dropout: float = 0.0
    attention_dropout: float = 0.0
    gelu: str = "tanh"
    swiglu: bool = False
    epsilon: float = 1e-6
    layer_scale: float | None = None
    qk_norm: bool = False
    relative_positions: bool = False
    rotary_positions: dict | None = None

    def __post_init__(self):
        set_fields(self, **vars(self))


def remat_of_blocks(remat, depth: int) -> list:
    """What each of `depth` blocks recomputes: `remat` for all of them, or one entry per block."""
    each = list(remat) if isinstance(remat, (list, tuple)) else [remat] * depth
    if len(each) != depth or any(part not in REMAT for part in each):
        raise ValueError(
            f"`remat` must be None, 'mlp', 'attention' or 'block', or a list of these for the {depth} blocks. "
            f"Received: {remat!r}"
        )
    return each


def stochastic_depth_of_blocks(rate, depth: int) -> list:
    """Each block's rate: one number grows linearly from 0 at the first block (scenic, DeiT), several are the rates."""
    if not isinstance(rate, (list, tuple)):
        return [rate * i / max(depth - 1, 1) for i in range(depth)]
    if len(rate) != depth:
        raise ValueError(
            f"`stochastic_depth` must be the last block's rate, or a list with a rate for each of the {depth} blocks. "
            f"Received {len(rate)} rates: {rate!r}"
        )
    return list(rate)


def set_fields(config, **values):
    """Sets fields of a frozen dataclass while it is initialized; NumPy's integers become Python's."""
    for name, value in values.items():
        object.__setattr__(config, name, python_integers(value))


def fields_as_keywords(kind: type) -> Callable:
    """Decorator of an `__init__` that takes a `config`: its callers may pass the fields of `kind` instead.

    `EncoderBlock(num_heads=3, mlp_dim=24)` equals `EncoderBlock(config=BlockConfig(num_heads=3, mlp_dim=24))`.
    Signatures show the fields.
    """
    names = [field.name for field in fields(kind)]

    def decorate(init: Callable[..., None]) -> Callable[..., None]:
        @wraps(init)
        def init_from_fields(self, *args, config=None, **keywords):
            values = {name: keywords.pop(name) for name in names if name in keywords}
            if config is not None and values:
                raise TypeError(f"Pass either `config` or its fields. Received: `config` and {', '.join(values)}")
            init(self, *args, config=kind(**values) if config is None else config, **keywords)

        own = inspect.signature(init).parameters.values()
        of_fields = [
            parameter.replace(kind=parameter.KEYWORD_ONLY) for parameter in inspect.signature(kind).parameters.values()
        ]
        shown = sorted(
            [*(parameter for parameter in own if parameter.name != "config"), *of_fields],
            key=lambda parameter: (parameter.kind, parameter.default is not parameter.empty),
        )
        init_from_fields.__signature__ = inspect.Signature(shown)  # type: ignore[attr-defined]
        return init_from_fields

    return decorate


def python_integers(value):
    """NumPy's integers as Python's, also inside tuples, lists and dicts; everything else unchanged."""
    if isinstance(value, dict):
        return {name: python_integers(inner) for name, inner in value.items()}
    if type(value) in (tuple, list):
        return type(value)(python_integers(inner) for inner in value)
    return int(value) if isinstance(value, Integral) and not isinstance(value, bool) else value
