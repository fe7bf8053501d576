"""From images to the names of what is on them."""

from keras import ops

from keras_vit.class_names import NUM_CLASSES, SIGMOID_CLASSES, imagenet_class_names, top_classes

BATCH_SIZE = 32


def most_likely_classes(model, images, top: int = 5) -> list[list[tuple[str, float]]]:
    """`keras_vit.classify` for a model of ours or an `OuterModel`."""
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
    """The name of each output, see `keras_vit.classify`."""
    return known_names(model) or tuple(f"class {i}" for i in range(model.num_classes))
