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
MOST_WEIGHTS = 1_000_000_000  # of attention in a report: of a ViT-B/16 at 384 pixels, of 20 images


def evidence_undefined(model) -> str:
    """Why `evidence` is not defined for a model; "" if it is."""
    try:
        ours, _, after = inside(model)
    except ValueError:
        return "it is no network of keras_vit"
    if not hasattr(ours, "attention_maps"):
        return "it is a ResNet, without attention"
    return gradient_rollout_undefined(ours, bool(after))


def affordable_images(model) -> int:
    """Of how many images the evidence takes about a minute on a CPU: it computes all attention and its gradients."""
    ours = inside(model).ours
    tokens = ours.prefix_tokens + math.prod(ours.grid)
    return MOST_WEIGHTS // (ours.config.depth * ours.config.num_heads * tokens**2)


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
