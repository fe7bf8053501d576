"""Images that show which patches speak for the predicted class."""

import math
from pathlib import Path

import numpy as np
from PIL import Image

from keras_vit.images.rgb import as_rgb
from keras_vit.inspect import figures, gradient_rollout
from keras_vit.inspect.attention import gradient_rollout_undefined
from keras_vit.models.outer_model import inside
from keras_vit_cli.output_folder import new_folder

SMALLEST_SIDE, LARGEST_SIDE = 256, 1024  # of an enlarged image


def check_evidence(model):
    """Raises a ValueError if `write_evidence` is not defined for a model."""
    ours, _, after = inside(model)
    reason = "it is a ResNet, without attention" if not hasattr(ours, "attention_maps") else None
    if reason := reason or gradient_rollout_undefined(ours, bool(after)):
        raise ValueError(f"--attention is not defined for {model.name}: {reason}.")


def write_evidence(model, files: list[Path], folder: Path) -> list[Path]:
    """Writes 000-name.png, ...: each image with the patches that contribute to its most likely class in orange.

    Images with a side below 256 pixels are enlarged, to at most 1,024 pixels. Returns the files.
    """
    with new_folder(folder, option="--attention") as new:
        names = [f"{number:03}-{file.stem}.png" for number, file in enumerate(files)]
        for file, name in zip(files, names):
            Image.fromarray(evidence(model, as_rgb(file, model.preprocessing.pixel_range))).save(new / name)
    return [folder / name for name in names]


def evidence(model, pixels: np.ndarray) -> np.ndarray:
    """An image (H, W, 3) uint8 with the evidence for its most likely class over the part that the model sees.

    It is enlarged by an integer if a side has fewer than 256 pixels: of 32 x 32 pixels nothing could be seen. The
    longer side is enlarged to at most 1,024 pixels.
    """
    relevance = gradient_rollout(model, model.preprocess(pixels))[0]  # at the model's size
    shorter, longer = sorted(pixels.shape[:2])
    scale = max(1, min(math.ceil(SMALLEST_SIDE / shorter), LARGEST_SIDE // longer))
    top, left, height, width = (scale * bound for bound in model.preprocessing.region(*pixels.shape[:2]))
    pixels = pixels.repeat(scale, axis=0).repeat(scale, axis=1)
    heat = np.zeros(pixels.shape[:2], "float32")
    resized = Image.fromarray(relevance).resize((width, height), Image.Resampling.BILINEAR)
    heat[top : top + height, left : left + width] = resized
    return figures.overlay(pixels, heat)
