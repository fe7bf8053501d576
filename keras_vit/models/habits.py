"""Arguments of other libraries, and the words for them here."""

# Of Keras applications, KerasHub, timm and transformers.
WORDS = {
    "include_top": "num_classes=0 for a model without a head",
    "classes": "num_classes",
    "num_labels": "num_classes",
    "input_shape": "image_size=(height, width)",
    "input_tensor": "keras.Model(inputs, model(inputs))",
    "image_shape": "image_size=(height, width)",
    "img_size": "image_size",
    "classifier_activation": "model.classify(images), or keras.ops.softmax of the outputs, which are logits",
    "activation": "model.classify(images), or keras.ops.softmax of the outputs, which are logits",
    "global_pool": 'pooling="token", "gap", "token_and_gap", "map" or "none"',
    "drop_rate": "dropout",
    "dropout_rate": "dropout",
    "attn_drop_rate": "attention_dropout",
    "drop_path_rate": "stochastic_depth",
    "patch_drop_rate": "patch_dropout",
    "embed_dim": "width",
    "hidden_dim": "width",
    "hidden_size": "width",
    "intermediate_size": "mlp_dim",
    "num_layers": "depth",
    "num_hidden_layers": "depth",
    "num_attention_heads": "num_heads",
    "pretrained": "weights, or keras_vit.load",
    "dynamic_img_size": "model.resized(image_size)",
    "gradient_checkpointing": 'remat="block"',
    "grad_checkpointing": 'remat="block"',
    "in_chans": "images with 3 channels, the only ones",
}
POOLINGS = {"avg": "gap", "mean": "gap", "cls": "token", "tok": "token", "class": "token", None: "none"}


def from_preset(preset, *args, **kwargs):
    """Raises a ValueError with the words to use: models of KerasHub and transformers are loaded by `keras_vit.load`."""
    raise ValueError(
        f"Expected keras_vit.load(weights). Received: the preset {preset!r}. `weights` is a preset's folder, "
        '"hf:google/vit-base-patch16-224", or one of keras_vit.weights.published_names().'
    )


def check_words(arguments):
    """Raises a ValueError for an argument that has another name here."""
    found = [f"{name}: use {WORDS[name]}" for name in arguments if name in WORDS]
    if found:
        raise ValueError(f"Arguments of other libraries. {'; '.join(found)}.")
