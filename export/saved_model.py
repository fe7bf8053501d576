"""SavedModel with named signatures: images as files, as pixels, or ready for the model."""

import json
import os
import shutil
import tempfile
from pathlib import Path

import tensorflow as tf

from keras_vit.export.exportable import check_classifier, check_exportable
from keras_vit.export.labels import LABELS, class_names
from keras_vit.export.serving import serving_functions

PREPROCESSING = "preprocessing.json"


def write_saved_model(model, folder, labels=None) -> Path:
    """Writes a SavedModel that TensorFlow Serving, or TensorFlow alone, loads and runs.

    Signatures, each for batches of any size, all with float32 outputs; C classes, D width of the features:

    - "serving_default", also "classify": `images` (B, H, W, 3) float32 in the model's range -> {"probabilities": (B, C)
      of a softmax}.
    - "logits": the same -> {"logits": (B, C)}, for sigmoids and temperatures of your own.
    - "features": the same -> {"features": (B, D)}, or (B, N, D) with pooling="none".
    - "attention": the same -> {"attention": (B, H, W) in [0, 1]}, as `keras_vit.attention_rollout`.
    - "serve_bytes": `image_bytes` (B,) strings, JPEG, PNG, BMP, WebP or GIF (its first frame) files of any sizes; they
      are decoded and prepared as `model.preprocess` does -> {"probabilities": (B, C), "top_probabilities": (B, 5),
      "top_classes": (B, 5) int32, "top_labels": (B, 5) strings if there are labels}, best first; fewer than 5 if C is.
    - "serve_uint8": `images` (B, any height, any width, 3) uint8 RGB -> the same as "serve_bytes".

    Without a head, "serving_default", "serve_bytes" and "serve_uint8" give the features, and "classify" and "logits"
    are left out; models without attention leave out "attention".

    assets/preprocessing.json (also in assets.extra) holds the fields of `keras_vit.Preprocessing`, assets/labels.txt
    the labels, one a line. The folder appears when it is complete.

    Args:
        model: A `VisionTransformer`, `BiT` or `AxialResNet`.
        folder: Where to; must not exist. TensorFlow Serving wants a number as its name: models/vit/1.
        labels: The name of each class in the order of the outputs, or (WordNet id, words) pairs; None for none.

    Returns:
        The folder.

    Raises:
        ValueError: The model is none of keras_vit, has no image size, or a head on unpooled tokens; labels are not as
            many as classes; the folder exists; Keras has another backend than TensorFlow.
    """
    check_exportable(model, "A SavedModel")
    check_classifier(model)
    names = None if labels is None else class_names(labels, model.num_classes)
    folder = Path(folder)
    if folder.exists():
        raise ValueError(f"{folder.absolute()} exists already. Remove it or choose another place.")
    functions = serving_functions(model, names)
    fields = json.dumps(model.preprocessing.get_config(), indent=2) + "\n"
    texts = {PREPROCESSING: fields} | ({LABELS: "\n".join(names) + "\n"} if names else {})
    folder.parent.mkdir(parents=True, exist_ok=True)
    aside = Path(tempfile.mkdtemp(prefix=f".{folder.name}-", dir=folder.parent))
    try:
        _save(aside, functions, texts)
        extra = aside / "assets.extra"  # where tools of ours look, whoever wrote the graph
        extra.mkdir()
        (extra / PREPROCESSING).write_text(fields, "utf-8")
        os.chmod(aside, 0o755)
        os.replace(aside, folder)
    finally:
        shutil.rmtree(aside, ignore_errors=True)
    return folder


def _save(folder, functions, texts):
    root = tf.Module()  # TensorFlow saves what hangs on it
    concrete = {name: function.get_concrete_function() for name, function in functions.items()}
    root.weights = list({id(weight): weight for one in concrete.values() for weight in one.variables}.values())
    with tempfile.TemporaryDirectory() as scratch:
        assets = {}
        for name, text in texts.items():
            path = Path(scratch) / name
            path.write_text(text, "utf-8")
            assets[path.stem] = tf.saved_model.Asset(str(path))
        root.preprocessing, root.labels = assets["preprocessing"], assets.get("labels")
        tf.saved_model.save(root, str(folder), signatures=concrete)
