"""Functions and methods of other libraries, and what to type here: an AttributeError says it."""

# Of Hugging Face's libraries, KerasHub and timm.
FUNCTIONS = {
    "create_model": "keras_vit.load(name) for weights, keras_vit.ViT('Ti/16') for a new model",
    "list_models": "keras_vit.weights.published_names()",
    "from_pretrained": "keras_vit.load(name)",
    "from_preset": "keras_vit.load(name)",
}
METHODS = {
    "from_pretrained": "keras_vit.load(name)",
    "from_preset": "keras_vit.load(name)",
    "save_pretrained": "keras_vit.weights.save(model, folder)",
    "save_to_preset": "keras_vit.weights.save(model, folder)",
    "forward_features": "model.features(images)",
    "get_classifier": "model.head",
    "reset_classifier": "model.with_head(num_classes)",
    "set_grad_checkpointing": "remat='block' of the model",
}


class OtherWord:
    """A class attribute that another library has: reading it raises an AttributeError with the word of this one."""

    def __init__(self, name: str, use: str):
        self.name, self.use = name, use

    def __get__(self, instance, owner):
        raise AttributeError(f"{owner.__name__} has no {self.name}. Use {self.use}.")


def with_other_words(cls):
    """Decorates a class of models with the methods of other libraries."""
    for name, use in METHODS.items():
        setattr(cls, name, OtherWord(name, use))
    return cls
