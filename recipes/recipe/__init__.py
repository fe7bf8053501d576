"""Typed dataclasses that define a training run; the command line is generated from them. No TensorFlow import here.

This file has the recipes with labels, self_supervised.py those without. Their sections are in data.py and training.py.
Names of durations and sizes contain their unit. A step is one optimizer step; batch sizes are global (all replicas).
"""

from dataclasses import dataclass, field
from typing import ClassVar, Literal

from keras_vit.recipes.recipe.data import Augment, Data
from keras_vit.recipes.recipe.errors import RecipeError
from keras_vit.recipes.recipe.self_supervised import MaskedAutoencoder, MaskedPatch
from keras_vit.recipes.recipe.training import Architecture, Optimizer, Run, require_patches
from keras_vit.recipes.recipe.values import Checked

__all__ = [
    "Architecture",
    "Augment",
    "Data",
    "Distillation",
    "MaskedAutoencoder",
    "MaskedPatch",
    "Optimizer",
    "Recipe",
    "Run",
    "SelfSupervised",
    "Supervised",
]
# Of the architecture, what a model with given weights takes, too.
USED_WITH_WEIGHTS = ("dropout", "stochastic_depth", "patch_dropout")


@dataclass(frozen=True)
class Supervised(Checked):
    """Training of a classifier, from scratch or from weights; `Supervised()` is the paper's fine-tuning (Table 4).

    Args:
        weights: As for `keras_vit.load`; None for random weights. Weights determine the model: of the architecture,
            only dropout, stochastic depth and patch dropout apply then. Positions are resampled.
        keep_head: Start with the head of the weights if it has the dataset's number of classes, as DeiT's code does;
            otherwise, and by default, the head starts at zeros, as in the paper.
        resample: How positions of weights for another image size are resampled, see `keras_vit.layers.resample_grid`.
        trainable_blocks: Number of last Transformer blocks to train, with the normalization, pooling and head after
            them; all before them is frozen, which takes less time and memory. 0 trains the head alone; None trains all.
        loss: "softmax"; "sigmoid" (the paper's pre-training: summed over classes); or "binary" (DeiT III: mean over the
            classes, and after mixup both classes count fully).
        label_smoothing: In [0, 1) for "softmax", [0, 0.5) for "sigmoid"; see `keras_vit.recipes.training.losses`.
        class_weight: "balanced" multiplies the loss of a training image by images / (classes x images of its class), as
            in scikit-learn and with Keras's `class_weight`; None for no weights. Evaluations are not weighted.
        head_bias: Initial bias of the head, new or kept; 0 leaves it as it is. The authors have -10 with "sigmoid".
        total_steps: Length of the training in steps; None if `total_epochs` is set.
        total_epochs: Length of the training in epochs; None if `total_steps` is set.
    """

    has_labels: ClassVar[Literal[True]] = True
    has_teacher: ClassVar[bool] = False

    architecture: Architecture = field(default_factory=Architecture)
    weights: str | None = None
    keep_head: bool = False
    resample: Literal["corners", "half_pixel", "bicubic", "bicubic_offset", "bicubic_antialias"] = "corners"
    trainable_blocks: int | None = None
    data: Data = field(default_factory=lambda: Data(image_size=384, crop="resize"))
    optimizer: Optimizer = field(default_factory=lambda: Optimizer(name="sgd", learning_rate=0.03, warmup_steps=500))
    run: Run = field(default_factory=Run)
    loss: Literal["softmax", "sigmoid", "binary"] = "softmax"
    label_smoothing: float = 0.0
    class_weight: Literal["balanced"] | None = None
    head_bias: float = 0.0
    total_steps: int | None = 20_000
    total_epochs: float | None = None

    def _check_one_length(self):
        if self.total_steps is not None and self.total_epochs is not None:
            raise RecipeError(
                "A run has a length in steps or in epochs, not both.",
                {"total_steps": self.total_steps, "total_epochs": self.total_epochs},
                [{"total_steps": None}, {"total_epochs": None}],
            )

    def _check_label_smoothing(self):
        largest = {"softmax": 1.0, "sigmoid": 0.5}.get(self.loss)
        if self.label_smoothing and largest is None:
            raise RecipeError(
                f"The loss {self.loss!r} counts every label above 0 as 1, so that smoothed ones would all be 1.",
                {"loss": self.loss, "label_smoothing": self.label_smoothing},
                [{"label_smoothing": 0.0}, {"loss": "sigmoid"}],
            )
        if largest is not None and self.label_smoothing >= largest:
            raise RecipeError(
                f"Label smoothing of the loss {self.loss!r} is in [0, {largest:g}).",
                {"label_smoothing": self.label_smoothing},
            )


@dataclass(frozen=True)
class Distillation(Supervised):
    """Training of a classifier that also learns from a teacher (DeiT, arXiv 2012.12877).

    Args:
        teacher: A Keras model (.keras) or the folder of a SavedModel that maps the student's images to logits.
        distillation: "hard" (the teacher's class as a label) or "soft" (its probabilities).
        temperature: Temperature of "soft".
        distillation_alpha: Weight of the teacher's part of the loss. DeiT uses 0.5 for "hard" and 0.1 for "soft".
        distillation_token: Learn from the teacher through a second token with a head of its own; False: the class token
            learns from both labels and teacher.
    """

    has_teacher: ClassVar[bool] = True

    teacher: str | None = None
    distillation: Literal["hard", "soft"] = "hard"
    temperature: float = 3.0
    distillation_alpha: float = 0.5
    distillation_token: bool = True

    _check_variant = require_patches


SelfSupervised = MaskedPatch | MaskedAutoencoder  # recipes without labels
Recipe = SelfSupervised | Supervised  # a Distillation is a Supervised
