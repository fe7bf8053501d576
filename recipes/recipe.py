"""What a training run is: typed dataclasses, from which the command line is made. Nothing here imports TensorFlow.

A duration or a size carries its unit in its name; steps are optimizer updates, batches are global (over all replicas).
"""

from dataclasses import dataclass, field
from typing import Literal


@dataclass(frozen=True)
class Architecture:
    """The model, see `keras_vit.VisionTransformer`; the picture size comes from the data."""

    patch_size: int = 16
    depth: int = 12
    width: int = 768
    mlp_dim: int = 3072
    num_heads: int = 12
    pooling: Literal["token", "gap", "map"] = "token"
    dropout: float = 0.0
    stochastic_depth: float = 0.0


@dataclass(frozen=True)
class Data:
    """The pictures and how they reach the model.

    Args:
        dataset: "digits" (scikit-learn's, 8 x 8 pixels), any name of TensorFlow Datasets, or "folder:/path" with the
            layout of `tfds.ImageFolder`: /path/<split>/<class>/<picture>.
        train_split, validation_split, test_split: In TensorFlow Datasets' notation, such as "train[:99%]".
        data_dir: Where prepared data sets are kept; None for TensorFlow Datasets' own place.
        image_size: Side of the square picture that the model sees, in pixels.
        batch_size: Pictures an update, over all replicas.
        labels_per_class: Train on so many pictures of each class only, chosen by the seed; None for all.
        min_crop_area: Smallest share of the picture that a random training crop keeps; 0.05 is the Inception crop of
            the paper, 1 means no crop.
        flip: Mirror half of the training pictures.
        shuffle_images: Size of the shuffle buffer.
        cache: Keep decoded pictures in memory.
    """

    dataset: str = "digits"
    train_split: str = "train"
    validation_split: str = "validation"
    test_split: str = "test"
    data_dir: str | None = None
    image_size: int = 224
    batch_size: int = 512
    labels_per_class: int | None = None
    min_crop_area: float = 0.05
    flip: bool = True
    shuffle_images: int = 50_000
    cache: bool = False


@dataclass(frozen=True)
class Optimizer:
    """How weights change: linear warm-up from 0, then decay; gradients are summed over replicas, then clipped.

    Args:
        name: "sgd" has momentum 0.9 (the paper's fine-tuning); "adam" and "adamw" have beta 0.9 and 0.999.
        learning_rate: Peak.
        decay: "cosine" to 0, "linear" to 1e-5, as the paper's code, or "constant".
        warmup_steps: Updates over which the rate grows.
        weight_decay: Decoupled, times the rate, on kernels only; of "adamw".
        global_clipnorm: Largest norm of all gradients together; None for no clipping.
    """

    name: Literal["adam", "adamw", "sgd"] = "adam"
    learning_rate: float = 1e-3
    decay: Literal["cosine", "linear", "constant"] = "cosine"
    warmup_steps: int = 0
    weight_decay: float = 0.0
    global_clipnorm: float | None = 1.0


@dataclass(frozen=True)
class Run:
    """Where and how exactly a run is computed.

    Args:
        strategy: "auto" takes a TPU if there is one, else all GPUs, else the processor.
        precision: Of the model: variables stay float32 in "mixed_bfloat16".
        seed: Of initial weights, data order, crops, masks and dropout.
        steps_per_execution: Updates between two visits to Python; more is faster for small models and on TPUs.
        folder: Where checkpoints and the recipe are kept, local or "gs://..."; None for nowhere.
        checkpoint_steps: Updates between two checkpoints.
        keep_checkpoints: Number of checkpoints that stay.
        resume: Go on from the last checkpoint in the folder, if there is one.
    """

    strategy: Literal["auto", "tpu", "mirrored", "multi-worker", "one-device"] = "auto"
    precision: Literal["float32", "mixed_bfloat16"] = "float32"
    seed: int = 0
    steps_per_execution: int = 1
    folder: str | None = None
    checkpoint_steps: int = 1_000
    keep_checkpoints: int = 3
    resume: bool = False


@dataclass(frozen=True)
class MaskedPatch:
    """Masked-patch pre-training, the paper's appendix B.1.2: its optimizer and schedule are the defaults.

    Args:
        target: What is predicted of a corrupted patch: its mean colour at 3 bits a channel, the 3-bit colours of the
            patch reduced to 4 x 4 pixels, or its pixels (L2 regression).
        corrupted_fraction: Share of the patches that are corrupted, in every picture exactly.
        masked_share: Share of the corrupted patches whose embedding becomes the learnable [mask] embedding.
        replaced_share: Share that becomes another patch's embedding; the rest is kept.
        total_steps: Updates.
    """

    architecture: Architecture = field(default_factory=Architecture)
    data: Data = field(default_factory=lambda: Data(batch_size=4096))
    optimizer: Optimizer = field(default_factory=lambda: Optimizer(learning_rate=2e-4, warmup_steps=10_000))
    run: Run = field(default_factory=Run)
    target: Literal["mean_color", "downsampled_color", "pixels"] = "mean_color"
    corrupted_fraction: float = 0.5
    masked_share: float = 0.8
    replaced_share: float = 0.1
    total_steps: int = 1_000_000


@dataclass(frozen=True)
class FineTune:
    """Supervised training of a classifier, from weights or from scratch; defaults are the paper's Table 4.

    Args:
        total_steps: Updates.
    """

    data: Data = field(default_factory=lambda: Data(image_size=384))
    optimizer: Optimizer = field(default_factory=lambda: Optimizer(name="sgd", learning_rate=0.03, warmup_steps=500))
    run: Run = field(default_factory=Run)
    total_steps: int = 20_000
