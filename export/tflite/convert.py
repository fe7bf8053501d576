"""TFLite files of one image, builtin operations only: float, and in integers of several kinds."""

import json
import tempfile
from collections.abc import Sequence
from pathlib import Path

import keras
import numpy as np
import tensorflow as tf

from keras_vit.export.exportable import check_exportable, check_pooled, checked_pixels
from keras_vit.export.labels import class_names
from keras_vit.export.saved_model import PREPROCESSING
from keras_vit.export.tflite.calibration import MIN_IMAGES, activation_ranges, channel_ranges
from keras_vit.export.tflite.description import Description
from keras_vit.export.tflite.device_form import CLASSIFY, INPUT, device_function, signatures_of
from keras_vit.export.tflite.equalize import even_out, folded_copy
from keras_vit.export.tflite.metadata import with_metadata
from keras_vit.export.tflite.quantize import CLIPPED, DYNAMIC, STATIC, quantize
from keras_vit.atomic_write import write_file

FORMATS = ("float32", "float16", *DYNAMIC, *STATIC)


def write_tflite(
    model,
    folder,
    formats: Sequence[str] = ("float32", "float16", "dynamic-int8"),
    calibration=None,
    *,
    signatures: Sequence[str] = (CLASSIFY,),
    labels=None,
    license: str = "",
    naive: bool = False,
    seed: int = 0,
    say=lambda text: None,
) -> dict[str, Path]:
    """Converts a model; writes `model-<format>.tflite` for each format, and preprocessing.json.

    Every file takes one image of the model's size, `images` (1, H, W, 3), pixels in [0, 255] as float32, of "int8" as
    uint8; what the model's weights want of pixels is done inside. "classify" gives `probabilities` (1, num_classes),
    "embed" `embedding` (1, D), "attention" the rollout map `attention` (1, h, w) in [0, 1]. Labels, preprocessing and
    description are in the file (`with_metadata`), where MediaPipe and Android look for them.

    Formats: "float32"; "float16" weights; "dynamic-int8" and "int4-weights": integer weights, activations become
    integers within each product; "mixed-int8": products in integers of ranges known before, the rest in float; "int8":
    all in integers; "int16x8": activations of 16 bits, layer normalization in float. The last three have ranges evened
    out first (`fold.even_out`), and if of 8 bits chosen for the least error (`calibration.activation_ranges`).

    Args:
        model: A `VisionTransformer` or `BiT` with a pooling.
        folder: Where to; made if needed.
        formats: Of `FORMATS`.
        calibration: For the last three, (n, H, W, 3) images of the model's size, pixels in [0, 255]; about 100 to 500
            of the training set.
        signatures: What a file has, the default one first, after which files are called unless it is "classify".
            MediaPipe takes files with one only. Several share their weights.
        labels: A name for each class, see `class_names`; in the file if "classify" is the first signature.
        license: Of the weights, in words.
        naive: Without evening out, each range from the smallest to the largest value: to see what these bring.
        seed: Of what the ranges are computed of.
        say: Is told what is going on.

    Returns:
        The file of each format.

    Raises:
        ValueError: A model of no keras_vit, without a size or a pooling, or with LoRA; an unknown format or signature,
            or one that it lacks; images are too few, of another size or range; labels are not as many as classes.
    """
    check_request(model, formats, signatures)
    for name in [name for name in formats if name in STATIC]:
        calibration = checked_images(calibration, model, name, signatures)
    names = None if labels is None else class_names(labels, model.num_classes)
    description = _description(model, names if signatures[0] == CLASSIFY else None, license)
    copy = folded_copy(model)
    (folder := Path(folder)).mkdir(parents=True, exist_ok=True)
    stem, files = "model" if signatures[0] == CLASSIFY else signatures[0], {}
    for name, content in _contents(copy, formats, signatures, calibration, naive, seed, say):
        files[name] = folder / f"{stem}-{name}.tflite"
        write_file(files[name], with_metadata(content, description, signatures[0]))
    write_file(folder / PREPROCESSING, (json.dumps(model.preprocessing.get_config(), indent=2) + "\n").encode())
    return files


def _description(model, labels, license) -> Description:
    about = f"{type(model).__name__} of keras_vit, {model.count_params():,} weights. Pixels in [0, 255]."
    return Description(
        model.name, about, license=license, labels=labels, preprocessing=model.preprocessing.get_config()
    )


def _contents(copy, formats, signatures, calibration, naive, seed, say):
    """Yields each format's name and content of a `folded_copy`."""
    float32 = None
    for name in [name for name in FORMATS if name in formats and name not in STATIC]:
        say(f"converting to {name}")
        if name == "float16":
            yield name, convert(copy, signatures, half=True)
            continue
        float32 = float32 or convert(copy, signatures)
        yield name, float32 if name == "float32" else quantize(float32, name)
    static = [name for name in STATIC if name in formats]
    if static:
        say("choosing the ranges of integers")
        float32, ranges = calibrated(copy, static, calibration, signatures, naive, seed)
    for name in static:
        say(f"converting to {name}")
        yield name, quantize(float32, name, ranges[name])


def calibrated(
    copy, formats: Sequence[str], images, signatures: Sequence[str] = (CLASSIFY,), naive: bool = False, seed: int = 0
) -> tuple[bytes, dict[str, dict]]:
    """What integer formats are made of.

    Args:
        copy: A `folded_copy`, which is evened out in place unless `naive`.
        formats: Of `STATIC`.
        images: See `checked_images`.
        signatures, naive, seed: See `write_tflite`.

    Returns:
        The float32 file, and for each format its ranges, see `activation_ranges`.
    """
    if not naive:
        even_out(copy, *channel_ranges(copy, images))
    float32 = convert(copy, signatures)
    clips = {name: name in CLIPPED and not naive for name in formats}
    ranges = {clip: activation_ranges(float32, images, seed, clip) for clip in sorted(set(clips.values()))}
    return float32, {name: ranges[clip] for name, clip in clips.items()}


def convert(copy, signatures: Sequence[str] = (CLASSIFY,), half: bool = False) -> bytes:
    """A `device_copy` as a float32 TFLite model, `half`: with weights in float16."""
    archive = keras.export.ExportArchive()
    archive.track(copy)
    pixels = tf.TensorSpec((1, *copy.image_size, 3), tf.float32, name=INPUT)
    for name in signatures:
        archive.add_endpoint(name, device_function(copy, name), input_signature=[pixels])
    with tempfile.TemporaryDirectory() as folder:
        archive.write_out(folder, verbose=False)
        converter = tf.lite.TFLiteConverter.from_saved_model(folder, signature_keys=list(signatures))
        converter.target_spec.supported_ops = [tf.lite.OpsSet.TFLITE_BUILTINS]
        if half:
            converter.optimizations = [tf.lite.Optimize.DEFAULT]
            converter.target_spec.supported_types = [tf.float16]
        return converter.convert()


def check_request(model, formats: Sequence[str], signatures: Sequence[str] = (CLASSIFY,)):
    """Raises ValueError for a model, formats or signatures that `write_tflite` does not take."""
    check_exportable(model, "A .tflite file")
    check_pooled(model)
    unknown = [name for name in formats if name not in FORMATS]
    if unknown or not formats:
        raise ValueError(f"`formats` must be some of {', '.join(FORMATS)}. Received: {list(formats)}")
    known = signatures_of(model)
    if CLASSIFY in signatures and CLASSIFY not in known:
        raise ValueError(f"{model.name} has no head to classify with. Say signatures=('embed',), or give it a head.")
    if not signatures or len(set(signatures)) < len(signatures) or set(signatures) - set(known):
        raise ValueError(
            f"`signatures` must be some of {', '.join(known)}, which {model.name} has. Received: {list(signatures)}"
        )


def checked_images(images, model, name: str, signatures: Sequence[str] = (CLASSIFY,)) -> np.ndarray:
    """Images to calibrate a format of `STATIC` with, (n, H, W, 3) float32.

    Raises:
        ValueError: They are too few, of another size, or not pixels in [0, 255]; more than one signature.
    """
    if len(signatures) > 1:
        raise ValueError(f"Format {name!r} takes one signature a file. Received: {list(signatures)}: write two files.")
    what = f"Format {name!r} needs `calibration`, best 100 to 500 images of the training set:"
    return checked_pixels(images, model, what, MIN_IMAGES)
