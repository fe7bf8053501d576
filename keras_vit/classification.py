"""From images to the names of what is on them."""

import inspect

import keras
import numpy as np
from keras import ops

from keras_vit.class_names import NUM_CLASSES, SIGMOID_CLASSES, imagenet_class_names, top_classes
from keras_vit.outer_model import image_model

BATCH_SIZE = 32


def classify(model, images, top: int = 5) -> list[list[tuple[str, float]]]:
    """The most likely classes of images, most likely first.

    Args:
        model: A classifier of keras_vit, or a Sequential or functional model around one, whose outputs are logits or
            end in a softmax or sigmoid.
        images: One image or a list: paths, Pillow images, or arrays of pixels in [0, 255]; a batch (B, H, W, 3) is B
            images. See `Preprocessing`.
        top: Number of classes per image, at most all.

    Returns:
        For each image a list of (class name, probability). Names are those of the model (`model.class_names`), else
        ImageNet's for 1000, 21841 and 21843 classes, else "class 0", "class 1", ... For the probabilities see
        `output_activation`.

    Raises:
        ValueError: The model has no head, one for every token, or a projection such as CLIP's; an image cannot be read;
            pixels are not in [0, 255].
        FileNotFoundError: A file does not exist.
    """
    model = image_model(model)
    check_no_projection(model)
    if not model.num_classes or getattr(model.config, "pooling", None) == "none":
        raise ValueError(
            f"{model.name} has no head for whole images: fine-tune it by `keras-vit finetune FOLDER "
            "--weights FILE`, or see model.with_head."
        )
    images = list(images) if isinstance(images, (list, tuple)) else [images]
    names, activation, predictions = output_names(model), output_activation(model), []
    for start in range(0, len(images), BATCH_SIZE):
        logits = model(model.preprocess(images[start : start + BATCH_SIZE]), training=False)
        predictions += top_classes(ops.convert_to_numpy(ops.cast(logits, "float32")), names, top, activation)
    return predictions


def is_projection(model) -> bool:
    """Whether the head is a projection, see `ViTConfig`; it is saved with the model."""
    return getattr(getattr(model, "config", None), "projection", False)


def has_classes(model) -> bool:
    """Whether a model has a head, and its outputs are classes."""
    return bool(model.num_classes) and not is_projection(model)


def check_no_projection(model):
    """Raises a ValueError if the head of a model is a projection, whose outputs are no classes."""
    if is_projection(model):
        raise ValueError(
            "The model knows no classes: its head is a projection, as CLIP's, or a regression, whose values the model "
            "returns. Train a head: keras-vit finetune FOLDER --weights FILE, or keras-vit probe; or export the "
            "outputs: keras-vit export FILE --signatures embed."
        )


def output_activation(model) -> str | None:
    """What makes probabilities of a model's logits, also in exported files: "softmax", or "sigmoid", one per class.

    None for a model around ours whose outputs are probabilities already.

    It is a sigmoid if the model has `multi_label`; for one class, whose softmax is 1; and for 21843 classes, because
    Google's checkpoints of ImageNet-21k are trained with one sigmoid per class.
    """
    if getattr(model, "returns_probabilities", False):
        return None
    return "sigmoid" if model.multi_label or model.num_classes in SIGMOID_CLASSES else "softmax"


def known_names(model) -> tuple[str, ...] | None:
    """The names of a model's classes, else ImageNet's for 1000, 21841 and 21843 classes; None if they are unknown."""
    if model.class_names is None and has_classes(model) and model.num_classes in NUM_CLASSES:
        return tuple(name for _, name in imagenet_class_names(model.num_classes))
    return model.class_names


def output_names(model) -> tuple[str, ...]:
    """The name of each output, see `classify`."""
    return known_names(model) or tuple(f"class {i}" for i in range(model.num_classes))


def check_takes_logits(losses, metrics, num_classes: int):
    """Raises a ValueError for a loss or a metric of Keras that takes a model's logits for probabilities.

    Such a loss clips logits to [0, 1]: a new head, which starts at zeros, would have no gradient and never learn.

    Args:
        losses, metrics: As `compile` takes them: names, functions, instances, lists and dictionaries of them.
        num_classes: Number of logits.
    """
    for item in keras.tree.flatten(losses):
        if _clips_negative_logits(item, num_classes):
            raise ValueError(
                "The model's outputs are logits. Expected a loss of logits: keras.losses.SparseCategoricalCrossentropy("
                "from_logits=True) for numbers of classes, CategoricalCrossentropy or BinaryCrossentropy(from_logits="
                f"True) for vectors. Received: {item}, which takes probabilities."
            )
    for item in keras.tree.flatten(metrics):
        if fix := _fix_of_metric(item):
            raise ValueError(f"The model's outputs are logits. Expected the metric {fix}. Received: {item}")


def _clips_negative_logits(loss, num_classes: int) -> bool:
    """Whether a loss depends on the logit of the true class, but not while it is negative."""
    if loss is None:
        return False
    logits = np.zeros((3, 1, num_classes), "float32")
    logits[..., -1] = 8.0  # a positive sum: some losses divide by it
    logits[:, 0, 0] = -1.0, -2.0, 0.5  # of the true class; the last is as good as a probability
    for labels in (np.eye(1, num_classes, dtype="float32"), np.zeros(1, "int32")):
        try:
            function = keras.losses.get(loss)
            results = [float(ops.sum(function(labels, ops.convert_to_tensor(row)))) for row in logits]
        except Exception:  # of other labels than these; Keras reports unknown names
            continue
        return results[0] == results[1] != results[2]
    return False


def _fix_of_metric(item) -> str | None:
    """What to use instead of a metric that expects probabilities; None for others."""
    if isinstance(item, str):
        try:
            item = keras.metrics.get(item)
        except ValueError:  # "accuracy" and "crossentropy", which Keras replaces, or an unknown name, which it reports
            return None
    if inspect.isfunction(item):
        parameter = inspect.signature(item).parameters.get("from_logits")
        from_logits = parameter is None or parameter.default
        title = "".join(word.title() for word in item.__name__.split("_"))
    else:
        from_logits = not hasattr(item, "get_config") or item.get_config().get("from_logits", True)
        title = type(item).__name__
    if not from_logits:
        return f"keras.metrics.{title}(from_logits=True)"
    if title in ("KlDivergence", "KLDivergence"):  # which has no `from_logits`
        return "keras.metrics.CategoricalCrossentropy(from_logits=True)"
    if isinstance(item, keras.metrics.BinaryAccuracy) and item.get_config()["threshold"] > 0:
        return "keras.metrics.BinaryAccuracy(threshold=0)"
    has_thresholds = isinstance(item, (keras.metrics.Precision, keras.metrics.Recall)) and item.top_k is None
    if has_thresholds and max(item.thresholds) > 0:
        return f"of probabilities, keras.ops.sigmoid or softmax of the outputs, or keras.metrics.{title}(top_k=1)"
    return None
