"""Writes a SavedModel with named signatures: encoded images, uint8 pixels, or preprocessed images.

B batch, H W pixels of the model, h w pixels of an image, N tokens, K heads, C classes, D width of the features.
"""

import json
import tempfile
from functools import partial
from pathlib import Path

import keras
import tensorflow as tf
from keras import ops

from keras_vit import Preprocessing
from keras_vit.atomic_write import literal_folder, new_files
from keras_vit.class_names import class_names_text
from keras_vit.export.checks import check_classifier, check_new_folder, exportable, exported_class_names
from keras_vit.export.names import CLASS_NAMES_FILE, CLASSIFY, INPUT, OUTPUTS, PREPROCESSING_FILE, PROJECTION
from keras_vit.images import normalize
from keras_vit.images.decoding import JPEG, PNG, decode, resize_and_crop
from keras_vit.images.rgb import gray
from keras_vit.inspect.attention import patch_share, resize_to_images, rollout
from keras_vit.messages import error_summary
from keras_vit.models.classification import is_projection, output_activation
from keras_vit.models.outer_model import OuterModel, apply, inside

OUTPUT = OUTPUTS[CLASSIFY]
TOP = 5
STARTS = (JPEG, PNG, b"GIF8", b"BM", b"RIFF")  # of the files that `decode` reads


def write_saved_model(model, folder, class_names=None, *, default_signature: str | None = None) -> Path:
    """Writes a SavedModel that TensorFlow Serving, or TensorFlow alone, loads and runs.

    Signatures, each for any batch size, all with float32 outputs; C classes, D width of the features:

    - "serving_default", also "classify": `images` (B, H, W, 3) float32 after `model.preprocess` -> {"probabilities":
      (B, C)}: a softmax, or with `multi_label`, for one and for 21843 classes one sigmoid per class.
    - "logits": the same -> {"logits": (B, C)}, for another temperature.
    - "features": the same -> {"features": (B, D)}, or (B, N, D) with pooling="none".
    - "attention": the same -> {"attention": (B, H, W) in [0, 1]}, see `keras_vit.attention_rollout`.
    - "serve_bytes": `image_bytes` (B,) strings, JPEG, PNG, WebP, GIF (its first frame) or BMP files of 8, 24 or
      32 bits, of any sizes, decoded and preprocessed in the graph -> {"probabilities": (B, C), "top_probabilities":
      (B, 5), "top_classes": (B, 5) int32, "top_class_names": (B, 5) strings if there are class names}, most likely
      first; fewer if C is smaller.
    - "serve_uint8": `images` (B, any height, any width, 3) uint8 RGB -> the same as "serve_bytes".

    Of a model of other `channels` than 3, images have as many; gray ones are made of files. Others than 1 and 3 have no
    "serve_bytes".

    Without a head, "serving_default", "serve_bytes" and "serve_uint8" return the features, and there is no "classify"
    and no "logits"; nor are there if the head is a projection, as CLIP's: they return {"projection": (B, C)}, and so
    does "projection". Models without attention have no "attention".

    assets/preprocessing.json (also in assets.extra) has the fields of `keras_vit.Preprocessing`, assets/labels.txt the
    class names, one per line. The folder appears once it is complete.

    Args:
        model: A `VisionTransformer`, `BiT` or `AxialResNet`; or a Sequential or functional model around one, without
            "features", and without "logits" if it ends in a softmax or sigmoid. Its `images` are those that it takes,
            perhaps pixels in [0, 255].
        folder: Folder to write; must not exist or be empty. TensorFlow Serving requires a version number: models/vit/1.
        class_names: One name per class in the order of the outputs, or (WordNet id, name) pairs; by default those that
            `keras_vit.classify` prints, if it knows any.
        default_signature: The signature that "serving_default" is, which servers run if a client names none; see above
            for the default. With "serve_bytes" clients send files.

    Returns:
        The folder.

    Raises:
        ValueError: The model is not of keras_vit, has no image size, or has a head on unpooled tokens. The number of
            class names differs from the number of classes. The model lacks `default_signature`. The folder is not
            empty. Keras's backend is not TensorFlow.
        OSError: The disk is full or cannot be written; nothing is left of the folder.
    """
    model = exportable(model, "A SavedModel")
    check_classifier(model)
    names = exported_class_names(model, class_names)
    folder = Path(folder)
    check_new_folder(folder)
    functions = _serving_functions(model, names)
    if default_signature is not None:
        if default_signature not in functions:
            raise ValueError(
                f"`default_signature` must be one of {', '.join(functions)}. Received: {default_signature!r}"
            )
        functions["serving_default"] = functions[default_signature]
    functions = {name: function.get_concrete_function() for name, function in functions.items()}
    preprocessing = json.dumps(model.preprocessing.get_config(), indent=2) + "\n"
    assets = {"preprocessing": (PREPROCESSING_FILE, preprocessing)}
    if names:
        assets["class_names"] = (CLASS_NAMES_FILE, class_names_text(names))
    folder.parent.mkdir(parents=True, exist_ok=True)
    with new_files(folder) as (temporary,):
        temporary.mkdir()
        try:
            save_functions(temporary, functions, assets)
        except (OSError, tf.errors.OpError) as error:  # TensorFlow's class for a full disk differs by file
            raise OSError(
                f"{folder.absolute()} cannot be written: {error_summary(error)}. Check the free space and permissions "
                f"there and in {tempfile.gettempdir()}."
            ) from error
        extra = temporary / "assets.extra"  # a fixed place for keras_vit, whatever wrote the graph
        extra.mkdir()
        (extra / PREPROCESSING_FILE).write_text(preprocessing, "utf-8")
    return folder


def _serving_functions(model, class_names: list[str] | None = None) -> dict:
    """Signature name -> `tf.function` for any batch size, see `write_saved_model`."""
    spec = tf.TensorSpec((None, *model.image_size, model.channels), tf.float32, name=INPUT)
    preprocessing = model.preprocessing
    functions, ours = {}, inside(model)
    if not isinstance(model, OuterModel):
        output = model.features if model.num_classes else partial(model, training=False)  # of a subclass: what it calls
        features = _function(lambda images: {"features": tf.cast(output(images), tf.float32)}, spec)
        functions, predict = {"serving_default": features}, features
    if is_projection(model):
        predict = _function(lambda images: {PROJECTION: tf.cast(model(images, training=False), tf.float32)}, spec)
        functions = {"serving_default": predict, PROJECTION: predict}
    elif model.num_classes:
        logits = _function(lambda images: {"logits": tf.cast(model(images, training=False), tf.float32)}, spec)
        activation_name = output_activation(model)
        activation = keras.activations.get(activation_name)
        classify = _function(lambda images: {OUTPUT: activation(logits(images)["logits"])}, spec)
        functions = {"serving_default": classify, CLASSIFY: classify} | ({"logits": logits} if activation_name else {})
        predict = lambda images: _with_top_classes(classify(images)[OUTPUT], class_names)  # noqa: E731
    if not isinstance(model, OuterModel):
        functions["features"] = features
    if model.channels in (1, 3):  # those of image files
        functions["serve_bytes"] = _function(
            lambda image_bytes: predict(decode_images(image_bytes, preprocessing)),
            tf.TensorSpec((None,), tf.string, name="image_bytes"),
        )
    functions["serve_uint8"] = _function(
        lambda images: predict(preprocess_images(images, preprocessing)),
        tf.TensorSpec((None, None, None, model.channels), tf.uint8, name=INPUT),
    )
    if hasattr(ours.ours, "attention_maps"):
        attention = lambda images: {"attention": _attention_map(ours.ours, apply(ours.before, images))}  # noqa: E731
        functions["attention"] = _function(attention, spec)
    return functions


def _function(function, spec):
    return tf.function(function, input_signature=[spec], autograph=False)


def _with_top_classes(probabilities, class_names: list[str] | None = None) -> dict:
    """Probabilities (B, C) with the most likely classes, best first: probabilities, class indices and names."""
    values, indices = tf.math.top_k(probabilities, min(TOP, probabilities.shape[-1]))
    outputs = {OUTPUT: probabilities, "top_probabilities": values, "top_classes": indices}
    return outputs | ({"top_class_names": tf.gather(tf.constant(class_names), indices)} if class_names else {})


def decode_images(image_bytes, preprocessing: Preprocessing):
    """Decodes and preprocesses encoded images (B,) of any sizes: (B, H, W, 3) float32, as `model.classify` does.

    An error names the indices of files that are not images or of an unsupported kind, so that a server's client knows
    which; TensorFlow's own error for a truncated file does not.
    """
    starts = [tf.strings.substr(image_bytes, 0, len(start)) == start for start in STARTS]
    wrong = tf.where(~tf.reduce_any(starts, axis=0))[:, 0]
    message = "Expected JPEG, PNG, GIF, BMP or WebP files. Received other content at the indices"
    with tf.control_dependencies([tf.debugging.Assert(tf.size(wrong) == 0, [message, wrong])]):
        image_bytes = tf.identity(image_bytes)

    def prepare(content_and_index):
        content, index = content_and_index
        image = decode(content, accurate=True, place=("at the index", index), pixel_range=preprocessing.pixel_range)
        return preprocess_images(image if preprocessing.channels == 3 else gray(image), preprocessing)

    shape = tf.TensorSpec((*preprocessing.image_size, preprocessing.channels), tf.float32)
    indices = tf.range(tf.size(image_bytes))
    return tf.map_fn(prepare, (image_bytes, indices), fn_output_signature=shape)  # (B, H, W, 3)


def preprocess_images(images, preprocessing: Preprocessing):
    """`preprocessing(images)` for a size known only when the graph runs: (..., h, w, 3) -> (..., H, W, 3) float32."""
    return normalize(resize_and_crop(images, preprocessing), preprocessing.mean, preprocessing.std)


def _attention_map(model, images):
    """`keras_vit.attention_rollout` in float32 on tensors: (B, H, W, 3) -> (B, H, W) in [0, 1]."""
    attention = ops.cast(model.attention_maps(images), "float32")  # (B, depth, K, N, N)
    return resize_to_images(rollout(attention, model.prefix_tokens, patch_share(model)), model)


def save_functions(folder, functions: dict, assets: dict):
    """Saves functions with their variables, and nothing else of the model, as a SavedModel.

    Args:
        folder: An existing folder.
        functions: Signature -> concrete function.
        assets: Attribute of the loaded object -> (file name, text).
    """
    root = tf.Module()  # TensorFlow saves what is an attribute of it
    root.weights = list(
        {id(weight): weight for function in functions.values() for weight in function.variables}.values()
    )
    with tempfile.TemporaryDirectory() as scratch:
        for attribute, (name, text) in assets.items():
            path = Path(scratch) / name
            path.write_text(text, "utf-8")
            setattr(root, attribute, tf.saved_model.Asset(str(path)))
        with literal_folder(folder) as literal:
            tf.saved_model.save(root, literal, signatures=functions)
