"""Sensitivity analysis: how much each part of a model costs when only it is quantized. n images, H W pixels."""

import re
from dataclasses import dataclass

import numpy as np

from keras_vit.export.checks import checked_images
from keras_vit.export.exported.parity import check_finite, has_logit_cosine, logit_cosine
from keras_vit.export.tflite.calibration import Float32File
from keras_vit.export.tflite.equalize import prepared_copies
from keras_vit.export.tflite.flatbuffer import pack_model
from keras_vit.export.tflite.graph import run_tflite
from keras_vit.export.tflite.quantize import quantize
from keras_vit.export.tflite.request import STATIC, all_but, checked_request, operations_of, part_names
from keras_vit.export.tflite.rounding import learn_rounding
from keras_vit.export.tflite.signatures import convert

ALL = "all"
# Where the worst part is no way out.
OTHER_FORMATS = {
    "mixed-int8": "dynamic-int8 has no calibrated ranges",
    "int8": "mixed-int8 is more accurate on CPUs, int16x8 on NPUs with 16-bit activations",
    "int16x8": "float16 is more accurate on GPUs and NPUs with floats",
}
_WORTH = 0.25  # of the error of the file


@dataclass(frozen=True)
class Sensitivity:
    """Agreement with float32 when some of the parts are quantized.

    Args:
        part: Name of the part, such as "block_3/mlp"; "all", or "all but <part>".
        cosine: Mean cosine similarity of the logits with those of float32, see `logit_cosine`; None for sigmoids and
            for two classes.
        agreement: Fraction of the images with the same top-1 class as float32, in [0, 1].
        difference: Without a cosine, the largest difference of an image's probabilities from those of float32, in
            [0, 1], mean over the images; else None.
    """

    part: str
    cosine: float | None
    agreement: float
    difference: float | None = None

    @property
    def error(self) -> float:
        """By which parts are compared: `difference`, or 1 - `cosine`."""
        return self.difference if self.cosine is None else 1 - self.cosine  # type: ignore[return-value]

    @property
    def measured(self) -> float:
        """What tables show: `difference`, or `cosine`."""
        return self.difference if self.cosine is None else self.cosine  # type: ignore[return-value]


def analyze_sensitivity(model, name: str, calibration, images) -> list[Sensitivity]:
    """Quantizes one part of the model at a time, with the rest and the probabilities in float32.

    Args:
        model: See `write_tflite`; with a head.
        name: "mixed-int8", "int8" or "int16x8".
        calibration, images: (n, H, W, 3) images of the model's size, pixels in [0, 255].

    Returns:
        The parts, each alone, most sensitive first; then "all", and "all but" the first one.
    """
    request = checked_request(model, [name], calibration)
    if name not in STATIC:
        raise ValueError(f"A sensitivity analysis supports the formats {', '.join(STATIC)}. Received: {name!r}")
    images = checked_images(images, model, "A sensitivity analysis requires")
    ((copy, form, _),) = prepared_copies(request)
    float32 = Float32File(convert(copy, form=form), request.calibration)
    expected = run_tflite(float32.content, images)[0]
    check_finite(expected, f"The model {model.name}")

    # Probabilities in steps of 1/256 differ more from those of float32 than all parts do, and change no class.
    (graph,) = float32.model.subgraphs
    probabilities = f"^{re.escape(graph.tensors[graph.outputs[0]].name.decode())}(;|$)"

    def measure(part, in_float):
        quantized = quantize(float32, name, (*in_float, probabilities))
        learn_rounding(quantized, float32)
        outputs = run_tflite(pack_model(quantized), images)[0]
        agreement = float((outputs.argmax(-1) == expected.argmax(-1)).mean())
        if not has_logit_cosine(model):
            return Sensitivity(part, None, agreement, float(np.abs(outputs - expected).max(axis=-1).mean()))
        return Sensitivity(part, float(logit_cosine(outputs, expected).mean()), agreement)

    results = [measure(part, all_but(copy, part)) for part in part_names(copy)]
    results.sort(key=lambda result: (-result.error, result.agreement))
    worst = results[0].part
    return [*results, measure(ALL, ()), measure(f"{ALL} but {worst}", operations_of(copy, [worst]))]


def sensitivity_table(name: str, results: list[Sensitivity]) -> str:
    """The results of a format as a Markdown table, and `propose`."""
    lines = [
        f"{name}: one part quantized, the rest in float32\n",
        f"| part | {_measure(results)} | agreement |",
        "|---|---|---|",
    ]
    lines += [f"| {result.part} | {result.measured:.5f} | {result.agreement:.2%} |" for result in results]
    return "\n".join([*lines, "", propose(name, results)])


def propose(name: str, results: list[Sensitivity]) -> str:
    """What to do about the error of a format, in one or two sentences."""
    *parts, whole, without = results
    worst, errors = parts[0].part, [one.error for one in parts]
    text = f"{worst} causes {errors[0] / max(sum(errors), 1e-9):.0%} of the parts' error"
    if without.error > (1 - _WORTH) * whole.error:
        return f"{text}, and without it the file is hardly better: {OTHER_FORMATS[name]}."
    verb = "lowers" if whole.cosine is None else "raises"
    change = f"{verb} the {_measure(results)} from {whole.measured:.5f} to {without.measured:.5f}"
    return (
        f"{text}. Leave it in float, which {change}, unless the accelerator has integers only: "
        f'--keep-float "{worst}". Otherwise {OTHER_FORMATS[name]}.'
    )


def _measure(results) -> str:
    return "largest difference" if results[0].cosine is None else "logit cosine"
