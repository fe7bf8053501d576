"""What the weights of one project have in common."""

from dataclasses import dataclass, field

from keras_vit.weights.naming import Naming


@dataclass(frozen=True)
class Source:
    """A project that publishes Vision Transformers, and what it leaves implicit in its files.

    Args:
        name: Short name, such as "timm".
        title: Name in messages.
        naming: Names and shapes of its arrays.
        gelu, epsilon: Arguments of its models unless the file has others; None for a ResNet, which has no GELU and
            whose `form` sets epsilon.
        resample: Default of how it resamples positions, see `resample_grid`.
        preprocessing: Fields of `Preprocessing` that differ from the defaults unless the file has others.
    """

    name: str
    title: str
    naming: Naming
    gelu: str | None = None
    epsilon: float | None = None
    resample: str = "corners"
    preprocessing: dict = field(default_factory=dict)
