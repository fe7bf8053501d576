"""Settings for fine-tuning on a folder of 30 to 5,000 images, from their number and the machine: pure functions.

The constants come from trials with a DeiT-Ti and 144 photographs, see docs/results.md.
"""

import math
from dataclasses import dataclass, replace
from typing import Literal

from keras_vit.images import shortest_size
from keras_vit.images.preprocessing import Preprocessing
from keras_vit.recipes.recipe import Supervised

MAX_HOURS_ON_A_CPU = 1.0
# A step has to average over several images, and there have to be several steps in an epoch.
SMALLEST_BATCH, STEPS_PER_EPOCH = 8, 8
LARGEST_BATCH = {False: 32, True: 128}  # on a CPU, where larger ones are no faster; on an accelerator
# Epochs: EPOCHS / sqrt(images), so that 25 times as many images take 5 times as long. Few images have to be seen often.
EPOCHS, FEWEST_EPOCHS, MOST_EPOCHS = 100, 5, 30
WARMUP_FRACTION = 0.1
LEARNING_RATE, BATCH_OF_RATE = 3e-4, 16  # AdamW's steps may be longer by the root of the batch (arXiv 2205.10287)
HEAD_RATE = 6.0  # times as high where the head alone is trained, which cannot destroy features
LARGEST_IMAGE_ON_A_CPU = 224  # of weights for 384 pixels: a third of the tokens
# The gradients of weights and of activations: two products for each of the forward pass.
BACKWARD = 2.0
EPOCH_LINES = 8  # lines of log.csv and of the progress bar in a run


@dataclass(frozen=True)
class Machine:
    """What training takes on this machine with these weights.

    Args:
        accelerator: Whether there is a GPU or TPU.
        forward_seconds: Of the model, per image.
        decode_seconds: To read and decode an image, with all CPU cores at work.
    """

    accelerator: bool
    forward_seconds: float
    decode_seconds: float


def image_size(
    preprocessing: Preprocessing, accelerator: bool, patch_size: tuple[int, int] = (1, 1)
) -> int | tuple[int, int]:
    """Size of the training images: that of the weights, on a CPU shrunk to at most the pixels of 224 x 224."""
    sides = preprocessing.image_size
    shrink = LARGEST_IMAGE_ON_A_CPU / math.sqrt(math.prod(sides))
    if accelerator or shrink >= 1:
        return shortest_size(sides)
    return shortest_size(
        [max(patch, int(side * shrink + 1e-6) // patch * patch) for side, patch in zip(sides, patch_size)]
    )


def batch_size(images: int, accelerator: bool) -> int:
    """The largest power of two with several steps per epoch; small batches are fine with AdamW and clipping."""
    most = min(LARGEST_BATCH[accelerator], max(SMALLEST_BATCH, images / STEPS_PER_EPOCH))
    return 2 ** int(math.log2(max(1, min(images, most))))


def total_epochs(images: int) -> float:
    """Epochs of the training, from `FEWEST_EPOCHS` to `MOST_EPOCHS`."""
    return min(MOST_EPOCHS, max(FEWEST_EPOCHS, EPOCHS / math.sqrt(images)))


def training_interpolation(interpolation: str) -> Literal["bilinear", "bicubic"]:
    """That of a recipe, which has two, for one of `Preprocessing`."""
    return "bilinear" if interpolation in ("nearest", "bilinear") else "bicubic"


def training_seconds(machine: Machine, images_seen: float, depth: int, trainable_blocks: int | None = None) -> float:
    """Estimate of a training's duration. The backward pass ends at the first block that is trained."""
    trained = 1.0 if trainable_blocks is None else trainable_blocks / depth
    return images_seen * (machine.decode_seconds + machine.forward_seconds * (1 + BACKWARD * trained))


def trainable_blocks(machine: Machine, images_seen: float, depth: int) -> int | None:
    """None for all of the model; on a CPU that takes over an hour for it, the last quarter of the blocks, else 0."""
    for count in (None, depth // 4):
        if machine.accelerator or training_seconds(machine, images_seen, depth, count) <= 3600 * MAX_HOURS_ON_A_CPU:
            return count
    return 0


def fit_to_folder(
    recipe: Supervised,
    images: int,
    preprocessing: Preprocessing,
    size: int | tuple[int, int],
    depth: int,
    machine: Machine,
) -> Supervised:
    """The settings for a folder in `finetune-small` with dataset, splits and weights; a BiT has the depth 0."""
    batch, epochs = batch_size(images, machine.accelerator), total_epochs(images)
    blocks = trainable_blocks(machine, images * epochs, depth) if depth else None
    seconds = training_seconds(machine, images * epochs, max(1, depth), blocks)
    if not machine.accelerator and blocks == 0 and seconds > 3600 * MAX_HOURS_ON_A_CPU:
        epochs = max(1.0, epochs * 3600 * MAX_HOURS_ON_A_CPU / seconds)
    every = max(1, round(epochs * images / batch / EPOCH_LINES))
    steps = EPOCH_LINES * every  # a rest would be compiled as a part of its own
    rate = LEARNING_RATE * math.sqrt(batch / BATCH_OF_RATE) * (HEAD_RATE if blocks == 0 else 1.0)
    return replace(
        recipe,
        trainable_blocks=blocks,
        data=replace(
            recipe.data,
            image_size=size,
            batch_size=batch,
            interpolation=training_interpolation(preprocessing.interpolation),
            antialias=preprocessing.antialias,
            mean=preprocessing.mean,  # type: ignore[arg-type]  # of RGB
            std=preprocessing.std,  # type: ignore[arg-type]
            evaluation_resize=preprocessing.resize,  # type: ignore[arg-type]  # which it has checked
            evaluation_crop=preprocessing.crop_fraction,
            pixel_range=preprocessing.pixel_range,
        ),
        optimizer=replace(
            recipe.optimizer,
            learning_rate=float(f"{rate:.2g}"),
            warmup_steps=_warmup(steps),
            layer_decay=recipe.optimizer.layer_decay if depth else None,
        ),
        run=replace(
            recipe.run,
            precision="mixed_bfloat16" if machine.accelerator else "float32",
            epoch_steps=every,
            checkpoint_steps=every,
        ),
        total_steps=steps,
    )


def shortened(recipe: Supervised, part: float) -> Supervised:
    """A recipe of `fit_to_folder` for a part of its images, in (0, 1]: with as many epochs."""
    every = max(1, round(part * recipe.run.epoch_steps))
    steps = EPOCH_LINES * every
    return replace(
        recipe,
        optimizer=replace(recipe.optimizer, warmup_steps=_warmup(steps)),
        run=replace(recipe.run, epoch_steps=every, checkpoint_steps=every),
        total_steps=steps,
    )


def _warmup(steps: int) -> int:
    return max(1, round(WARMUP_FRACTION * steps))
