"""Which parts of a model lose most when they are computed in integers. n images, H W pixels."""

import re
import tempfile
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from keras_vit.export.exportable import checked_pixels
from keras_vit.export.parity import logit_cosine
from keras_vit.export.tflite.convert import calibrated, check_request, checked_images
from keras_vit.export.tflite.device_form import plain_blocks
from keras_vit.export.tflite.equalize import folded_copy
from keras_vit.export.tflite.interpreter import run_tflite
from keras_vit.export.tflite.quantize import STATIC, quantize


@dataclass(frozen=True)
class PartCost:
    """What a part costs when it alone is quantized.

    Args:
        part: Such as "block_3/mlp".
        cosine: Of the logits with those of float32, mean.
        agreement: Share of the images with the same top-1 as float32, in [0, 1].
    """

    part: str
    cosine: float
    agreement: float


def part_costs(model, name: str, calibration, pixels, seed: int = 0) -> list[PartCost]:
    """Quantizes the model once for each part, the rest in float32.

    Args:
        model: As for `write_tflite`, with a head.
        name: "mixed-int8", "int8" or "int16x8".
        calibration, pixels: (n, H, W, 3) images of the model's size, pixels in [0, 255].
        seed: As for `write_tflite`.

    Returns:
        The worst first.

    Raises:
        ValueError: Another format, a model that has no head or cannot be exported, or images that are too few, of
            another size or range.
    """
    check_request(model, [name])
    if name not in STATIC:
        raise ValueError(f"Parts are quantized one at a time in {', '.join(STATIC)}. Received: {name!r}")
    calibration, pixels = (
        checked_images(calibration, model, name),
        checked_pixels(pixels, model, "A comparison needs"),
    )
    copy = folded_copy(model)
    float32, ranges = calibrated(copy, [name], calibration, seed=seed)
    expected = _run(float32, pixels)
    halves = ("attention", "mlp")
    parts = [f"{block.name}/{half}" for block in plain_blocks(copy) for half in halves] + ["head"]
    costs = []
    for part in [*parts, "all else"]:
        inside = "|".join(re.escape(one) for one in (parts if part == "all else" else [part]))
        others = f".*({inside}).*" if part == "all else" else f"^(?!.*({inside})).*"
        found = _run(quantize(float32, name, ranges[name], keep_float=(others,)), pixels)
        agreement = float((found.argmax(-1) == expected.argmax(-1)).mean())
        costs.append(PartCost(part, float(logit_cosine(found, expected).mean()), agreement))
    return sorted(costs, key=lambda cost: (cost.cosine, cost.agreement))


def _run(content, pixels) -> np.ndarray:
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "model.tflite"
        path.write_bytes(content)
        return run_tflite(path, pixels)[0]
