"""Writes TFLite files: `write_tflite`."""

import json
from collections.abc import Callable, Sequence
from pathlib import Path

from keras_vit.atomic_write import write_file
from keras_vit.export.names import CLASSIFY, PREPROCESSING_FILE
from keras_vit.export.tflite.calibration import Float32File
from keras_vit.export.tflite.equalize import prepared_copies
from keras_vit.export.tflite.metadata import pack_with_metadata
from keras_vit.export.tflite.quantize import quantize
from keras_vit.export.tflite.request import FLOATS, FORMATS, STATIC, checked_request
from keras_vit.export.tflite.rounding import learn_rounding
from keras_vit.export.tflite.signatures import convert


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
            `request.part_names`.
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
    request = checked_request(
        model,
        formats,
        calibration,
        signatures=signatures,
        class_names=class_names,
        license=license,
        equalize=equalize,
        keep_float=keep_float,
        batch_size=batch_size,
    )
    (folder := Path(folder)).mkdir(parents=True, exist_ok=True)
    stem = "model" if signatures[0] == CLASSIFY else signatures[0]
    files: dict[str, Path] = {}
    for copy, form, names in prepared_copies(request, log):
        float32 = None
        for name in names:
            log(f"Converting to {name}")
            if float32 is None or name in FLOATS:
                content = convert(copy, signatures, form, half=name == "float16", batch_size=request.batch_size)
                float32 = Float32File(content, request.calibration)
            if name in FLOATS:
                tflite = float32.model
            else:
                tflite = quantize(float32, name, request.in_float if name in STATIC else ())
                if request.calibration is not None:
                    learn_rounding(tflite, float32)
            if not files:  # before the first one, which it describes: what follows may fail
                preprocessing = json.dumps(request.model.preprocessing.get_config(), indent=2) + "\n"
                write_file(folder / PREPROCESSING_FILE, preprocessing.encode())
            files[name] = folder / f"{stem}-{name}.tflite"
            write_file(files[name], pack_with_metadata(tflite, request.description, signatures[0]))
    return {name: files[name] for name in FORMATS if name in files}
