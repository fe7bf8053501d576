"""Where checkpoints come from, and all that the numbers of each depend on, in one table."""

from dataclasses import dataclass, field

from keras_vit.weights.names import BIG_VISION, BIT_MODELS, BIT_PAPER, BIT_V1, HUGGING_FACE, KERAS_PEERS, TIMM, VIT_JAX
from keras_vit.weights.naming import Naming


@dataclass(frozen=True)
class Source:
    """How a project's Vision Transformers differ from another's.

    Args:
        title: Its name for people.
        naming: How it names and shapes weights.
        gelu, epsilon: Of its models, where the file says nothing else; None for a ResNet, which has no GELU and whose
            form fixes its epsilon.
        resample: How it resamples positions, see `resample_grid`.
        preprocessing: Fields of `Preprocessing` that differ from the defaults, where the file says nothing else.
    """

    title: str
    naming: Naming
    gelu: str | None = None
    epsilon: float | None = None
    resample: str = "corners"
    preprocessing: dict = field(default_factory=dict)


_BIG_VISION_IMAGES = {"resize": "shortest", "crop_fraction": 0.875, "antialias": True}
# Pillow smooths when it shrinks, tf.image.resize does not; big_vision's "area" is nearest to smoothing.
SOURCES = {
    "vit_jax": Source("google-research/vision_transformer", VIT_JAX, "tanh", 1e-6, "corners"),
    "big_vision": Source(
        "google-research/big_vision",
        BIG_VISION,
        "tanh",
        1e-6,
        "corners",
        _BIG_VISION_IMAGES,
    ),
    "bit_v1": Source("google-research/big_vision, BiT v1", BIT_V1, preprocessing=_BIG_VISION_IMAGES),
    "bit_paper": Source("google-research/big_vision, BiT", BIT_PAPER, preprocessing=_BIG_VISION_IMAGES),
    "bit_models": Source("google-research/big_transfer", BIT_MODELS),
    "hugging_face": Source("Hugging Face transformers", HUGGING_FACE, "erf", 1e-12, "bicubic", {"antialias": True}),
    "keras_hub": Source("KerasHub", KERAS_PEERS, "erf", 1e-6, "bicubic", {"resize": "shortest"}),
    "model_garden": Source(
        "tf-models-official",
        KERAS_PEERS,
        "tanh",
        1e-6,
        "half_pixel",
        {
            "resize": "shortest",
            "crop_fraction": 0.875,
            "mean": (0.485, 0.456, 0.406),
            "std": (0.229, 0.224, 0.225),
        },
    ),
    "timm": Source(
        "timm",
        TIMM,
        "erf",
        1e-6,
        "bicubic_antialias",
        {"resize": "shortest", "crop_fraction": 0.9, "interpolation": "bicubic", "antialias": True},
    ),
}
