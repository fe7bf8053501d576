"""TFLite files of one picture, builtin operations only: float, and in integers of several kinds."""

import json
import tempfile
from collections.abc import Sequence
from pathlib import Path

import keras
import numpy as np
import tensorflow as tf

from keras_vit.export.calibration import MIN_IMAGES, activation_ranges, channel_ranges
from keras_vit.export.description import Description
from keras_vit.export.device_form import CLASSIFY, INPUT, device_copy, device_function, signatures_of
from keras_vit.export.fold import even_out, fold_norms
from keras_vit.export.labels import class_names
from keras_vit.export.metadata import with_metadata
from keras_vit.export.quantize import DYNAMIC, STATIC, quantize
from keras_vit.export.saved_model import PREPROCESSING
from keras_vit.export.write_file import write_file

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

    Every file takes one picture of the model's size, `images` (1, H, W, 3), pixels in [0, 255] as float32, of "int8" as
    uint8; what the model's weights want of pixels is done inside. "classify" gives `probabilities` (1, num_classes),
    "embed" `embedding` (1, D), "attention" the rollout map `attention` (1, h, w) in [0, 1]. Labels, preprocessing and
    description are in the file (`with_metadata`), where MediaPipe and Android look for them.

    Formats: "float32"; "float16" weights; "dynamic-int8" and "int4-weights": integer weights, activations become
    integers within each product; "mixed-int8": products in integers of ranges known before, the rest in float; "int8":
    integers throughout, for accelerators that have nothing else; "int16x8": activations of 16 bits, layer normalisation
    in float. For the last three, ranges are evened out first (`fold.even_out`); those of 8 bits are chosen for the
    least error (`calibration.activation_ranges`).

    Args:
        model: A `VisionTransformer` or `BiT` with a pooling.
        folder: Where to; made if needed.
        formats: Of `FORMATS`.
        calibration: (n, H, W, 3) pictures of the model's size, pixels in [0, 255], for "mixed-int8", "int8" and
            "int16x8"; about 100 to 500 of the training set.
        signatures: What a file has, the default one first. MediaPipe takes files with one only; of "embed" or
            "attention" alone the files are called after it. Several share their weights.
        labels: A name for each class, see `class_names`.
        license: Of the weights, in words.
        naive: Without evening out, each range from the smallest to the largest value: to see what these bring.
        seed: Of what the ranges are computed of.
        say: Is told what is going on.

    Returns:
        The file of each format.

    Raises:
        ValueError: An unknown format or signature, one that the model does not have, too few pictures or of another
            size, or another number of labels than of classes.
    """
    _check(model, formats, signatures)
    needs = [name for name in formats if name in STATIC]
    if needs:
        calibration = _checked_pictures(calibration, model, needs[0], signatures)
    names = None if labels is None or not model.num_classes else class_names(labels, model.num_classes)
    description = Description(
        name=model.name,
        description=f"{type(model).__name__} of keras_vit, {model.count_params():,} weights. Pixels in [0, 255].",
        license=license,
        labels=names if signatures[0] == CLASSIFY else None,
        preprocessing=model.preprocessing.get_config(),
    )
    folder = Path(folder)
    folder.mkdir(parents=True, exist_ok=True)
    stem = "model" if signatures[0] == CLASSIFY else signatures[0]
    files = {}
    for name, content in _contents(model, formats, signatures, calibration, naive, seed, say):
        files[name] = folder / f"{stem}-{name}.tflite"
        write_file(files[name], with_metadata(content, description))
    write_file(folder / PREPROCESSING, (json.dumps(model.preprocessing.get_config(), indent=2) + "\n").encode())
    return files


def _contents(model, formats, signatures, calibration, naive, seed, say):
    """Yields each format's name and content."""
    copy, ranges, float32 = device_copy(model), {}, None
    fold_norms(copy)
    for name in sorted(formats, key=FORMATS.index):
        say(f"converting to {name}")
        if name in STATIC and not ranges and not naive:
            even_out(copy, *channel_ranges(copy, calibration))
            float32 = convert(copy, signatures)
        float32 = float32 or convert(copy, signatures)
        clip = not naive and name != "int16x8"  # 16 bits have steps enough for the whole range
        if name in STATIC and clip not in ranges:
            ranges[clip] = activation_ranges(float32, calibration, seed, clip)
        if name == "float32":
            yield name, float32
        elif name == "float16":
            yield name, convert(copy, signatures, half=True)
        else:
            yield name, quantize(float32, name, ranges.get(clip))


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


def _check(model, formats, signatures):
    unknown = [name for name in formats if name not in FORMATS]
    if unknown or not formats:
        raise ValueError(f"`formats` must be some of {', '.join(FORMATS)}. Received: {list(formats)}")
    known = signatures_of(model)
    if not signatures or len(set(signatures)) < len(signatures) or set(signatures) - set(known):
        raise ValueError(
            f"`signatures` must be some of {', '.join(known)}, which {model.name} has. Received: {list(signatures)}"
        )


def _checked_pictures(pictures, model, name, signatures) -> np.ndarray:
    shape = (*model.image_size, 3)
    if len(signatures) > 1:
        raise ValueError(f"Format {name!r} takes one signature a file. Received: {list(signatures)}: write two files.")
    if pictures is None or len(pictures) < MIN_IMAGES or np.shape(pictures)[1:] != shape:
        raise ValueError(
            f"Format {name!r} needs `calibration`: at least {MIN_IMAGES} pictures (n, {', '.join(map(str, shape))}), "
            "pixels in [0, 255], best 100 to 500 of the training set. "
            f"Received: {'nothing' if pictures is None else np.shape(pictures)}"
        )
    pictures = np.asarray(pictures, "float32")
    if pictures.min() < 0 or pictures.max() <= 1:
        raise ValueError(
            "`calibration` must be pixels in [0, 255], not yet prepared for the model. "
            f"Received values between {pictures.min():.3g} and {pictures.max():.3g}."
        )
    return pictures
