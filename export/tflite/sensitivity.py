"""Sensitivity analysis: how much each part of a model costs when only it is quantized. n images, H W pixels."""

import re
import tempfile
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from keras_vit.export.checks import checked_images
from keras_vit.export.parity import check_finite, logit_cosine
from keras_vit.export.tflite.convert import calibrate, check_request, checked_calibration
from keras_vit.export.tflite.equalize import folded_copy
from keras_vit.export.tflite.graph_rewrite import encoder_blocks
from keras_vit.export.tflite.interpreter import run_tflite
from keras_vit.export.tflite.quantize import STATIC, quantize
from keras_vit.export.tflite.rotate import rotate_tokens


@dataclass(frozen=True)
class Sensitivity:
    """Agreement with float32 when a single part is quantized.

    Args:
        part: Name of the part, such as "block_3/mlp".
        cosine: Mean cosine similarity of the logits with those of float32, see `logit_cosine`.
        agreement: Fraction of the images with the same top-1 class as float32, in [0, 1].
    """

    part: str
    cosine: float
    agreement: float


def analyze_sensitivity(model, name: str, calibration, images) -> list[Sensitivity]:
    """Quantizes one part of the model at a time, with the rest in float32.

    Args:
        model: See `write_tflite`; with a head.
        name: "mixed-int8", "int8" or "int16x8".
        calibration, images: (n, H, W, 3) images of the model's size, pixels in [0, 255].

    Returns:
        The parts, most sensitive first.

    Raises:
        ValueError: The format is unknown. The model has no head or cannot be exported. There are too few images,
            or they have another size or values outside [0, 255].
        FloatingPointError: Outputs of the model are NaN or infinite.
    """
    check_request(model, [name])
    if name not in STATIC:
        raise ValueError(f"A sensitivity analysis supports the formats {', '.join(STATIC)}. Received: {name!r}")
    calibration = checked_calibration(calibration, model, name)
    images = checked_images(images, model, "A sensitivity analysis requires")
    copy = folded_copy(model)
    rotate_tokens(copy)
    float32, ranges = calibrate(copy, [name], calibration)[name]
    expected = _run(float32, images)
    check_finite(expected, f"The model {model.name}")
    branches = ("attention", "mlp")
    parts = [f"{block.name}/{branch}" for block in encoder_blocks(copy) for branch in branches] + ["head"]
    results = []
    for part in [*parts, "all else"]:
        names = "|".join(re.escape(one) for one in (parts if part == "all else" else [part]))
        in_float = f".*({names}).*" if part == "all else" else f"^(?!.*({names})).*"
        found = _run(quantize(float32, name, ranges, keep_float=(in_float,)), images)
        agreement = float((found.argmax(-1) == expected.argmax(-1)).mean())
        results.append(Sensitivity(part, float(logit_cosine(found, expected).mean()), agreement))
    return sorted(results, key=lambda result: (result.cosine, result.agreement))


def _run(content, images) -> np.ndarray:
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "model.tflite"
        path.write_bytes(content)
        return run_tflite(path, images)[0]
