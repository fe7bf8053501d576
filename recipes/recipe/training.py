"""The sections of a recipe that describe its model and its training. No TensorFlow import here."""

import os
from dataclasses import dataclass, fields
from typing import ClassVar, Literal

from keras_vit.recipes.recipe.errors import RecipeError
from keras_vit.recipes.recipe.values import Checked
from keras_vit.variants import BIT_SIZES

BIT = "BiT-"  # starts the names of variants without patches
PATTERN_SIGNS = "*?[\\"


@dataclass(frozen=True)
class Architecture(Checked):
    """The model, see `keras_vit.VisionTransformer`; the image size comes from the data.

    Args:
        variant: As for `keras_vit.ViT`, such as "B/16" or "R50+B/16"; or a BiT, such as "BiT-R50x1".
        depth: Number of blocks; None for that of the variant.
        width: Width of the tokens; None for that of the variant.
        mlp_dim: Hidden width of the MLPs; None for that of the variant.
        num_heads: Number of attention heads; None for that of the variant.
        pooling: "token", "gap" or "map".
        representation_size: Width of a hidden tanh layer before the head, as in the paper's pre-training; None for no
            such layer.
        position_embedding, position_placement, prefix_positions: See `ViTConfig`.
        initialization: Start weights of "vit" (the paper's code), "deit" or "mae", see
            `keras_vit.recipes.training.initialization`; not used with given weights.
        qk_norm: Normalize queries and keys: allows higher learning rates.
        gelu: "tanh", the approximation in the paper's code, or "erf", the exact form in PyTorch's.
        layer_scale: Initial value of learnable factors on the residual branches (arXiv 2103.17239); None for none.
        dropout: Rate of dropout.
        stochastic_depth: Rate of the last block, which grows linearly from 0 at the first; or several, one for each
            block.
        patch_dropout: Fraction of the patches that is dropped in training, at random; 0.5 halves the tokens.
    """

    place: ClassVar[str] = "architecture."

    variant: str = "B/16"
    depth: int | None = None
    width: int | None = None
    mlp_dim: int | None = None
    num_heads: int | None = None
    pooling: Literal["token", "gap", "map"] = "token"
    representation_size: int | None = None
    position_embedding: Literal["learned_1d", "learned_2d", "relative", "sincos_2d", "rotary", "none"] = "learned_1d"
    position_placement: Literal["stem", "every_layer", "shared"] = "stem"
    prefix_positions: bool = True
    initialization: Literal["vit", "deit", "mae"] = "vit"
    qk_norm: bool = False
    gelu: Literal["tanh", "erf"] = "tanh"
    layer_scale: float | None = None
    dropout: float = 0.0
    stochastic_depth: float | tuple[float, ...] = 0.0
    patch_dropout: float = 0.0

    @property
    def is_bit(self) -> bool:
        """Whether the model is a BiT, a ResNet without patches."""
        return self.variant.startswith(BIT)

    def _check_bit(self):
        if self.is_bit:
            variants = [BIT + size for size in BIT_SIZES]
            if self.variant not in variants:
                raise RecipeError(f"Expected one of {', '.join(variants)}.", {"architecture.variant": self.variant})
            check_bit_fields(self, [field.name for field in fields(self) if field.name != "variant"])


def check_bit_fields(architecture: Architecture, names):
    """Raises RecipeError for values of these fields that a BiT does not support, all but the defaults."""
    defaults = {f"architecture.{field.name}": field.default for field in fields(architecture) if field.name in names}
    values = {name: getattr(architecture, name.removeprefix("architecture.")) for name in defaults}
    changed = {name: value for name, value in values.items() if value != defaults[name]}
    if changed:
        reason = "A BiT does not support these fields of an architecture."
        raise RecipeError(reason, changed, {name: defaults[name] for name in changed})


def require_patches(recipe):
    """Raises RecipeError for a BiT, which has no patches to mask and no distillation token."""
    variant = recipe.architecture.variant
    if recipe.architecture.is_bit and not recipe.weights:
        raise RecipeError(
            f"A {type(recipe).__name__} recipe requires a Vision Transformer.",
            {"architecture.variant": variant},
            {"architecture.variant": "B/16"},
        )


@dataclass(frozen=True)
class Optimizer(Checked):
    """Optimizer and learning-rate schedule: linear warmup from 0, then decay. Gradients are all-reduced, then clipped.

    Args:
        name: "sgd" has momentum 0.9 (the paper's fine-tuning); "adam" and "adamw" have beta 0.9 and `beta_2`; "muon" is
            Muon with momentum 0.95 for the kernels inside the model, "adamw" for all else; "lion" has beta 0.9 and 0.99
            and requires learning rates 3 to 10 times lower than "adamw"; "lamb" is for large batches and, without
            weight decay, equals "adam".
        learning_rate: Peak learning rate.
        decay: "cosine" to 0; "linear" to 1e-5, as in the paper's code; "constant"; or "staircase": divided by 10 at
            each fraction of the run in `staircase` (BiT).
        staircase: Fractions of `total_steps`, used by decay "staircase".
        warmup_steps: Steps of linear warmup.
        weight_decay: Decoupled, times the learning rate, on kernels only; not for "adam". See docs/recipes.md.
        global_clipnorm: Largest allowed norm of all gradients together; None for no clipping.
        accumulation_steps: Gradient accumulation: number of parts of each replica's batch, one in memory at a time.
        ema_momentum: Momentum of an exponential moving average (EMA) of the weights, used by evaluations and results;
            None for no EMA. The paper's ImageNet runs have 0.9999.
        layer_decay: Layer-wise learning-rate decay: factor from layer to layer, from the head down; None disables it.
            0.65 to 0.75 are common.
        beta_2: Decay of the mean squared gradients of "adam", "adamw", "muon" and "lamb"; not used by others.
    """

    place: ClassVar[str] = "optimizer."

    name: Literal["adam", "adamw", "sgd", "muon", "lion", "lamb"] = "adam"
    learning_rate: float = 1e-3
    decay: Literal["cosine", "linear", "constant", "staircase"] = "cosine"
    staircase: tuple[float, ...] = (0.3, 0.6, 0.9)
    warmup_steps: int = 0
    weight_decay: float = 0.0
    global_clipnorm: float | None = 1.0
    accumulation_steps: int = 1
    ema_momentum: float | None = None
    layer_decay: float | None = None
    beta_2: float = 0.999

    def _check_staircase(self):
        stairs = self.staircase
        if self.decay == "staircase" and (not stairs or [0, *stairs, 1] != sorted({0, *stairs, 1})):
            raise RecipeError(
                "The fractions of a staircase increase within (0, 1).",
                {"optimizer.staircase": stairs},
                {"optimizer.staircase": Optimizer.staircase},
            )

    def _check_weight_decay(self):
        if self.weight_decay and self.name == "adam":
            raise RecipeError(
                "Adam has no weight decay.",
                {"optimizer.name": self.name, "optimizer.weight_decay": self.weight_decay},
                [{"optimizer.name": "adamw"}, {"optimizer.weight_decay": 0.0}],
            )


@dataclass(frozen=True)
class Run(Checked):
    """Devices, precision, checkpoints and logs of a run.

    Args:
        strategy: "auto" uses a TPU if there is one, else the workers of TF_CONFIG, else all GPUs, else the CPU.
        precision: Dtype policy of the model. In "mixed_bfloat16", variables stay float32. "mixed_float16" is for GPUs
            without bfloat16 (T4, V100): the loss is scaled, see `keras_vit.recipes.processes.replicas`.
        remat: Part of each Transformer block that the backward pass recomputes instead of storing: less memory, more
            computation, the same numbers. See `keras_vit.layers.EncoderBlock` and docs/tpu_memory.md.
        shard_optimizer: Split the optimizer's state among all devices (ZeRO-1), with Keras on JAX: less memory, the
            same numbers. See `keras_vit.recipes.processes.replicas` and docs/tpu.md.
        seed: Seed of initial weights, data order, crops, masks and dropout.
        steps_per_execution: Steps per call of the compiled training function. More is faster for small models and on
            TPUs.
        epoch_steps: Steps per epoch of Keras: between two validations, lines of log.csv and points of the curves.
        folder: Folder of checkpoints, recipe, logs and trained model, local or "gs://..."; None to save nothing.
        checkpoint_steps: Steps between two checkpoints.
        keep_checkpoints: Number of checkpoints to keep.
        resume: Resume from the last checkpoint in the folder, if there is one.
        max_nonfinite_steps: A step with non-finite gradients changes no weight; this number in a row stops the run.
        early_stopping_patience: Stop after this number of validations in a row without a new best one; None to train
            all steps. The learning rate is then not decayed to its end, unless `optimizer.decay` is "constant".
        restore_best_weights: The result has the weights of the best validation instead of the last ones.
        monitor: Metric of validations that decides which is best: the lowest "loss" or the highest "top1".
        tensorboard: Write scalars and images for TensorBoard into the folder.
        join_seconds: With several processes: how long one waits for the others to start.
    """

    place: ClassVar[str] = "run."

    strategy: Literal["auto", "tpu", "mirrored", "multi-worker", "one-device"] = "auto"
    precision: Literal["float32", "mixed_bfloat16", "mixed_float16"] = "float32"
    remat: Literal["mlp", "attention", "block"] | None = None
    shard_optimizer: bool = False
    seed: int = 0
    steps_per_execution: int = 1
    epoch_steps: int = 1_000
    folder: str | None = None
    checkpoint_steps: int = 1_000
    keep_checkpoints: int = 3
    resume: bool = False
    max_nonfinite_steps: int = 10
    early_stopping_patience: int | None = None
    restore_best_weights: bool = False
    monitor: Literal["loss", "top1"] = "loss"
    tensorboard: bool = False
    join_seconds: int = 600

    @property
    def chooses_weights(self) -> bool:
        """Whether validations decide when the run ends, or which weights it returns."""
        return self.early_stopping_patience is not None or self.restore_best_weights

    def _check_folder(self):
        if self.folder is not None and (signs := sorted(set(PATTERN_SIGNS).intersection(self.folder))):
            plain = self.folder.translate(str.maketrans(PATTERN_SIGNS, "_" * len(PATTERN_SIGNS)))
            raise RecipeError(
                f"TensorFlow reads the path of a checkpoint as a pattern, so it must not contain {' '.join(signs)}",
                {"run.folder": self.folder},
                {"run.folder": plain},
            )
        if self.folder is not None and self.folder.startswith("~"):
            expanded = os.path.expanduser(self.folder)
            raise RecipeError("Only a shell expands ~", {"run.folder": self.folder}, {"run.folder": expanded})
