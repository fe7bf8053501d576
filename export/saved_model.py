"""SavedModel with a named signature."""

import json
import os
import shutil
import tempfile
from pathlib import Path

import keras
import tensorflow as tf

SIGNATURE = "classify"
INPUT, OUTPUT = "images", "probabilities"
PREPROCESSING = "preprocessing.json"


def write_saved_model(model, folder, batch_size: int | None = None) -> Path:
    """Writes a classifier as a SavedModel that maps pictures to probabilities.

    Its signature "classify" (also "serving_default") takes `images`, (batch, H, W, 3) float32 in the model's range, and
    returns {"probabilities": (batch, num_classes) float32}. How pictures are prepared is in
    assets.extra/preprocessing.json, the fields of `keras_vit.Preprocessing`. The folder appears when it is complete.

    Args:
        model: A `VisionTransformer` with a head.
        folder: Where to; must not exist.
        batch_size: A fixed batch, for converters; None leaves it open.

    Returns:
        The folder.

    Raises:
        ValueError: The model has no head, no picture size or returns tokens, or the folder exists.
    """
    if model.image_size is None:
        raise ValueError(f"{model.name} takes pictures of any size; say which with model.resized(224).")
    if not model.num_classes or len(model.compute_output_shape((None, *model.image_size, 3))) != 2:
        raise ValueError(
            f"Only a classifier can be exported, but {model.name} gives "
            f"{model.compute_output_shape((None, *model.image_size, 3))}. Build it with num_classes and a pooling."
        )
    folder = Path(folder)
    if folder.exists():
        raise ValueError(f"{folder.absolute()} exists already. Remove it or choose another place.")

    def classify(images):
        return {OUTPUT: tf.nn.softmax(tf.cast(model(images, training=False), tf.float32))}

    archive = keras.export.ExportArchive()
    archive.track(model)
    spec = tf.TensorSpec((batch_size, *model.image_size, 3), tf.float32, name=INPUT)
    archive.add_endpoint(SIGNATURE, classify, input_signature=[spec])
    folder.parent.mkdir(parents=True, exist_ok=True)
    aside = tempfile.mkdtemp(prefix=f".{folder.name}-", dir=folder.parent)
    try:
        archive.write_out(aside, verbose=False)
        extra = Path(aside) / "assets.extra"  # TensorFlow's place for files that its graphs do not read
        extra.mkdir()
        (extra / PREPROCESSING).write_text(json.dumps(model.preprocessing.get_config(), indent=2) + "\n")
        os.chmod(aside, 0o755)
        os.replace(aside, folder)
    finally:
        shutil.rmtree(aside, ignore_errors=True)
    return folder
