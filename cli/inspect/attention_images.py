"""Images with attention rollout drawn over them. H W pixels."""

import keras
from keras import ops

from keras_vit.classification import is_projection, output_activation, output_names, top_classes
from keras_vit.inspect import attention_rollout, figures, gradient_rollout
from keras_vit.inspect.attention import patch_share
from keras_vit_cli.html import image_rows
from keras_vit_cli.inspect.image_files import ImageBatch


def rollout_section(vit, shown: ImageBatch) -> tuple[str, str, str]:
    """Title, text and HTML: images, attention rollout and, where it is defined, gradient-weighted rollout."""
    undefined = gradient_rollout_undefined(vit)
    rows = []
    for i, (name, pixels) in enumerate(zip(shown.names, shown.pixels)):
        image = shown.inputs[i : i + 1]  # one at a time: attention of large models takes gigabytes
        row = [(pixels, name), (figures.overlay(pixels, attention_rollout(vit, image)[0]), "rollout")]
        if not undefined:
            overlay = figures.overlay(pixels, gradient_rollout(vit, image)[0])
            row.append((overlay, f"for {_prediction(vit, image)}"))
        rows.append(row)
    patches = "the mean of the patches"
    source = {0.0: "the class token", 0.5: f"the class token and {patches}", 1.0: patches}[patch_share(vit)]
    text = (
        f"Attention multiplied through the layers, read from {source}: the patches that can influence the prediction. "
        "Paper, figure 6 and appendix D.8; arXiv 2005.00928. "
    )
    text += (
        f"No gradient-weighted rollout: {undefined}."
        if undefined
        else "On the right, weighted by the gradients of the predicted class: evidence for it (arXiv 2103.15679)."
    )
    return "Attention rollout", text, image_rows(rows)


def gradient_rollout_undefined(vit) -> str:
    """Why `gradient_rollout` is not defined for a model; "" if it is."""
    reasons = (
        (not vit.num_classes, "the model has no head"),
        (is_projection(vit), "the head is a projection to the space that images share with texts"),
        (vit.head_distillation is not None, "the model has two heads"),
        (vit.config.pooling == "none", "the model predicts for every token"),
        (vit.config.axial, "axial attention is a product of two factors, for which it is not defined"),
        (keras.backend.backend() != "tensorflow", "it requires the TensorFlow backend"),
    )
    return next((reason for holds, reason in reasons if holds), "")


def _prediction(vit, image) -> str:
    """The predicted class and its probability."""
    logits = ops.convert_to_numpy(vit(image))
    (((name, probability),),) = top_classes(logits, output_names(vit), 1, output_activation(vit))
    return f"{name}, {probability:.1%}"
