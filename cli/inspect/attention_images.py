"""Images under what a model read its answer from, for a page. H W pixels."""

import keras
from keras import ops

from keras_vit import decode_predictions
from keras_vit_cli.html.image_rows import image_rows
from keras_vit.inspect import attention_rollout, figures, gradient_rollout
from keras_vit.inspect.rollout import reads_patches


def attention_rows(vit, shown, labels=None) -> tuple[str, str, str]:
    """Title, text and HTML: images, attention rollout and, where it is defined, the one weighted by gradients."""
    why_not = _why_not(vit)
    rows = []
    for i, (name, pixels) in enumerate(zip(shown.names, shown.pixels)):
        image = shown.images[i : i + 1]  # one at a time: attention of large models takes gigabytes
        row = [(pixels, name), (figures.overlay(pixels, attention_rollout(vit, image)[0]), "rollout")]
        if not why_not:
            row.append((figures.overlay(pixels, gradient_rollout(vit, image)[0]), f"for {_answer(vit, image, labels)}"))
        rows.append(row)
    read = "the patches" if reads_patches(vit) else "the class token"
    text = (
        f"Attention multiplied through the layers, read from {read}: what the answer could be made of. Paper, figure 6 "
        "and appendix D.8; arXiv 2005.00928. "
    )
    text += (
        f"Not weighted by gradients: {why_not}."
        if why_not
        else "On the right, weighted by the gradients of the likeliest class: what speaks for it (arXiv 2103.15679)."
    )
    return "Attention rollout", text, image_rows(rows)


def _why_not(vit) -> str:
    """Why `gradient_rollout` is not defined for a model; "" if it is."""
    reasons = (
        (not vit.num_classes, "the model has no head"),
        (vit.head_distillation is not None, "the model has two heads"),
        (vit.arguments["pooling"] == "none", "the model answers for every token"),
        (vit.arguments["axial"], "attention of axial blocks is a product of two that the gradients do not see"),
        (keras.backend.backend() != "tensorflow", "that needs the TensorFlow backend"),
    )
    return next((reason for holds, reason in reasons if holds), "")


def _answer(vit, image, labels):
    """The likeliest class and how likely."""
    logits = ops.convert_to_numpy(vit(image))
    if labels is None and vit.num_classes not in (1000, 21841, 21843):  # those of ImageNet have names
        labels = [f"class {i}" for i in range(vit.num_classes)]
    ((_, words, probability),) = decode_predictions(logits, 1, labels)[0]
    return f"{words}, {probability:.1%}"
