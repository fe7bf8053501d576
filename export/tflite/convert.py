"""Writes TFLite files: `write_tflite`, the conversion to float, and the ranges of the integer formats."""

import json
import re
import tempfile
from collections.abc import Callable, Iterator, Sequence
from functools import lru_cache, partial
from pathlib import Path

import numpy as np
import tensorflow as tf
from ai_edge_litert.schema_py_generated import ModelT

from keras_vit.atomic_write import write_file
from keras_vit.export.checks import check_exportable, check_pooled, checked_images, disk_reason, exported_class_names
from keras_vit.export.names import CLASSIFY, EMBED, INPUT, PREPROCESSING_FILE
from keras_vit.export.saved_model import save_functions
from keras_vit.export.tflite.arithmetic import FLOAT, HALF, INTEGERS
from keras_vit.export.tflite.calibration import (
    MIN_IMAGES,
    activation_ranges,
    attention_ranges,
    fixed_ranges,
    input_moments,
    measure_square_sums,
    symmetric_ranges,
    uneven_ranges,
)
from keras_vit.export.tflite.equalize import balance_attention, fold_pixels, folded_copy, rotate_tokens
from keras_vit.export.tflite.flatbuffer import unpack_model
from keras_vit.export.tflite.graph_rewrite import available_signatures, signature_function
from keras_vit.export.tflite.metadata import Description, pack_with_metadata
from keras_vit.export.tflite.quantize import ACTIVATION_BITS, DYNAMIC, STATIC, operations_of, quantize
from keras_vit.export.tflite.rounding import learn_rounding
from keras_vit.images import is_integer
from keras_vit.models.classification import check_no_projection, is_projection, output_activation
from keras_vit.models.outer_model import OuterModel, image_model

FLOATS = ("float32", "float16")
FORMATS = (*FLOATS, *DYNAMIC, *STATIC)


def write_tflite(
    model,
    folder,
    formats: Sequence[str] = ("float32", "float16", "dynamic-int8"),
    calibration=None,
    *,
    signatures: Sequence[str] = (CLASSIFY,),
    class_names: Sequence | None = None,
    license: str = "",
    equalize: bool = True,
    keep_float: Sequence[str] = (),
    batch_size: int = 1,
    log: Callable[[str], object] = lambda text: None,
) -> dict[str, Path]:
    """Writes `model-<format>.tflite` for each format, and preprocessing.json; existing files are replaced.

    Every file takes B images of the model's size, by default one, `images` (B, H, W, 3), pixels in [0, 255] as float32,
    for "int8" as uint8; scaling by mean and standard deviation is in the graph. "classify" returns `probabilities` (B,
    num_classes), a softmax, or with `multi_label`, for one and for 21843 classes one sigmoid per class, "embed"
    `embedding` (B, D), the features before the head, or the output of a head that is a projection, as CLIP's,
    "attention" the rollout map `attention` (B, h, w) in [0, 1]. Class names, preprocessing and description are in the
    file (`with_metadata`), where MediaPipe and Android Studio look for them.

    Formats: "float32"; "float16": weights in half precision; "dynamic-int8" and "int4-weights": integer weights, and
    activations quantized at run time within each matrix product; "mixed-int8": the same, and the products of queries
    and keys in integers with calibrated ranges; "int8": all in integers; "int16x8": 16-bit activations, layer
    normalization in float. The last three require `calibration`.

    Args:
        model: A `VisionTransformer` with a pooling, a `BiT` or an `ImageClassifier`; or a Sequential or functional
            model around one, in float32 and float16, whose layers are converted as Keras runs them.
        folder: Folder to write to; created if needed.
        formats: Some of `FORMATS`.
        calibration: (n, H, W, 3) images of the model's size, pixels in [0, 255], for "mixed-int8", "int8" and
            "int16x8"; about 100 to 500 of the training set. With one signature, "dynamic-int8" and "int4-weights" are
            more accurate with them.
        signatures: Signatures of each file, the default one first; unless that is "classify", files are named after
            it. MediaPipe supports files with one signature only. Several share their weights.
        class_names: One name per class, see `write_saved_model`; in the file if "classify" is the first signature.
        license: License of the weights.
        equalize: For integer formats, whether to rotate the tokens (`rotate_tokens`) and, for the last three, to
            balance queries and keys (`balance_attention`). False omits both, for comparison.
        keep_float: Parts that "mixed-int8", "int8" and "int16x8" leave in float32, such as "block_0/attention"; see
            `quantize.part_names`.
        batch_size: B, the number of images that the files take. MediaPipe and web pages take files of one image only.
        log: Function that prints progress.

    Returns:
        Format -> file.

    Raises:
        ValueError: The model is not of keras_vit, has no image size or pooling, has quantized layers or an operation
            that TFLite lacks. A format or signature is unknown, or the model lacks it, or a part of `keep_float`. There
            are too few images, or they have another size or values outside [0, 255]. The number of class names differs
            from the number of classes. The batch size is not a positive integer.
        OSError: A disk is full or cannot be written.
    """
    model = image_model(model)
    check_request(model, formats, signatures)
    if not is_integer(batch_size):
        raise ValueError(f"`batch_size` must be a positive integer. Received: {batch_size!r}")
    calibrated = STATIC if calibration is None or len(signatures) > 1 else (*STATIC, *DYNAMIC)
    if static := [name for name in formats if name in calibrated]:
        calibration = checked_calibration(calibration, model, static[0], signatures)
    in_float = operations_of(model, keep_float)
    names = exported_class_names(model, class_names)
    description = _description(model, signatures[0], names, license)
    copy = folded_copy(model)
    (folder := Path(folder)).mkdir(parents=True, exist_ok=True)
    stem = "model" if signatures[0] == CLASSIFY else signatures[0]
    files: dict[str, Path] = {}
    preprocessing = json.dumps(model.preprocessing.get_config(), indent=2) + "\n"
    for name, tflite in _tflite_models(
        copy, formats, signatures, calibration, equalize, in_float, int(batch_size), log
    ):
        if not files:  # before the first one, which it describes: what follows may fail
            write_file(folder / PREPROCESSING_FILE, preprocessing.encode())
        files[name] = folder / f"{stem}-{name}.tflite"
        write_file(files[name], pack_with_metadata(tflite, description, signatures[0]))
    return files


def _description(model, first, class_names, license) -> Description:
    kind = type(getattr(model, "ours", model)).__name__
    text = f"{kind} of keras_vit, {model.count_params():,} weights. Pixels in [0, 255]."
    if first == CLASSIFY and output_activation(model) == "sigmoid":
        text += " Each class has a probability of its own, a sigmoid: they do not add up to 1."
    if first == EMBED and is_projection(model):
        text += " Embeddings are in the space that images share with texts."
    return Description(
        model.name,
        text,
        license=license,
        class_names=class_names if first == CLASSIFY else None,
        preprocessing=model.preprocessing.get_config(),
    )


def _tflite_models(
    copy, formats, signatures, calibration, equalize, in_float, batch_size, log
) -> Iterator[tuple[str, ModelT]]:
    """Yields each format and its model, see `unpack_model`, for a `folded_copy`."""
    for name in [name for name in FLOATS if name in formats]:
        log(f"Converting to {name}")
        # GPUs compute both in half precision.
        yield name, unpack_model(convert(copy, signatures, HALF, half=name == "float16", batch_size=batch_size))
    if equalize and set(formats) - set(FLOATS):
        rotate_tokens(copy)
    moments_of = lru_cache(1)(partial(input_moments, images=calibration))  # formats of one kind share a file
    float32 = None
    for name in [name for name in DYNAMIC if name in formats]:
        log(f"Converting to {name}")
        float32 = float32 or convert(copy, signatures, batch_size=batch_size)
        tflite = quantize(float32, name)
        if calibration is not None and len(signatures) == 1:
            learn_rounding(tflite, unpack_model(float32), moments_of(float32))
        yield name, tflite
    static = [name for name in STATIC if name in formats]
    if not static:
        return
    log("Calibrating the ranges of activations")
    calibrated = calibrate(copy, static, calibration, signatures, equalize, batch_size)
    for name in static:
        log(f"Converting to {name}")
        float32, ranges = calibrated[name]
        tflite = quantize(float32, name, ranges, keep_float=in_float)
        learn_rounding(tflite, unpack_model(float32), moments_of(float32))
        yield name, tflite


def calibrate(
    copy,
    formats: Sequence[str],
    images,
    signatures: Sequence[str] = (CLASSIFY,),
    equalize: bool = True,
    batch_size: int = 1,
) -> dict[str, tuple[bytes, dict[str, dict]]]:
    """The float32 files and the ranges that static formats are quantized from.

    Args:
        copy: A `folded_copy`, rotated or not; with `equalize` its queries and keys are balanced in place, for "int8"
            its pixels are folded.
        formats: Some of `STATIC`.
        images: See `checked_calibration`.
        signatures, equalize, batch_size: See `write_tflite`.

    Returns:
        Format -> (content of the float32 file, ranges), see `activation_ranges`.
    """
    if equalize:
        balance_attention(copy, attention_ranges(copy, images))
    sizes = {}
    for integers in sorted({name == "int8" for name in formats}):  # int8 last: it changes the copy
        if integers:
            fold_pixels(copy)
            measure_square_sums(copy, signatures[0], images)
        float32 = convert(copy, signatures, INTEGERS if integers else FLOAT, batch_size=batch_size)
        tflite = unpack_model(float32)
        ranges = fixed_ranges(tflite, activation_ranges(float32, images, narrow=integers))
        for name in [name for name in formats if (name == "int8") == integers]:
            # 16-bit integers always have the zero point 0.
            of_bits = symmetric_ranges if ACTIVATION_BITS[name] == 8 else uneven_ranges
            sizes[name] = float32, of_bits(tflite, ranges)
    return sizes


def convert(
    copy, signatures: Sequence[str] = (CLASSIFY,), form: str = FLOAT, half: bool = False, batch_size: int = 1
) -> bytes:
    """Converts an `export_copy` to a float32 TFLite model; with `half`, its weights are float16."""
    spec = tf.TensorSpec((batch_size, *copy.image_size, copy.channels), tf.float32, name=INPUT)
    functions = {
        name: tf.function(signature_function(copy, name, form), [spec], autograph=False).get_concrete_function()
        for name in signatures
    }
    with tempfile.TemporaryDirectory() as folder:
        try:
            save_functions(folder, functions, {})  # half the time of Keras's exporter, which saves all objects
        except tf.errors.OpError as error:
            raise OSError(
                f"The folder {tempfile.gettempdir()} for temporary files cannot be written: {disk_reason(error)}. Free "
                "some space there, or set TMPDIR to another disk."
            ) from error
        converter = tf.lite.TFLiteConverter.from_saved_model(folder, signature_keys=list(signatures))
        converter.target_spec.supported_ops = [tf.lite.OpsSet.TFLITE_BUILTINS]
        if half:
            converter.optimizations = [tf.lite.Optimize.DEFAULT]
            converter.target_spec.supported_types = [tf.float16]
        try:
            return converter.convert()
        except Exception as error:  # of a class that TensorFlow does not export
            if not (missing := re.search(r"(?:TF Select|Custom) ops: (.*)", str(error))):
                raise
            raise ValueError(
                f"{copy.name} has operations that TFLite lacks, or lacks for so many axes: {missing[1]}. Use "
                "write_saved_model or write_onnx."
            ) from error


def check_request(model, formats: Sequence[str], signatures: Sequence[str] = (CLASSIFY,)):
    """Raises ValueError for a model, formats or signatures that `write_tflite` does not support."""
    for name, names in (("formats", formats), ("signatures", signatures)):
        if isinstance(names, str):
            raise ValueError(f"`{name}` must be a list. Received: the string {names!r}. Pass {name}=[{names!r}]")
    check_exportable(model, "A .tflite file")
    check_pooled(model)
    unknown = [name for name in formats if name not in FORMATS]
    if unknown or not formats:
        raise ValueError(f"`formats` must be some of {', '.join(FORMATS)}. Received: {list(formats)}")
    if model.channels not in (1, 3):
        raise ValueError(
            f"A .tflite file takes RGB or gray images. Received: {model.name}, of {model.channels} channels. Use "
            "write_saved_model or write_onnx."
        )
    integers = [name for name in formats if name not in FLOATS]
    if isinstance(model, OuterModel) and integers:
        raise ValueError(
            f"A model around one of keras_vit is written in {', '.join(FLOATS)}. Received: {model.name} and "
            f"{', '.join(integers)}, for which the layers are rewritten. Export {model.ours.name}, the model inside."
        )
    available = available_signatures(model)
    if CLASSIFY in signatures and CLASSIFY not in available:
        check_no_projection(model)
        raise ValueError(f"{model.name} has no head to classify with. Pass signatures=('embed',), or add a head.")
    if not signatures or len(set(signatures)) < len(signatures) or set(signatures) - set(available):
        raise ValueError(
            f"`signatures` must be some of {', '.join(available)}, which {model.name} has. Received: {list(signatures)}"
        )


def checked_calibration(images, model, name: str, signatures: Sequence[str] = (CLASSIFY,)) -> np.ndarray:
    """Calibration images of a format of `STATIC`, (n, H, W, 3) float32."""
    if len(signatures) > 1:
        raise ValueError(f"Format {name!r} supports one signature per file. Received: {list(signatures)}")
    what = f"Format {name!r} requires `calibration`, best 100 to 500 images of the training set:"
    return checked_images(images, model, what, MIN_IMAGES)
