"""The weights and layers of a model by their path inside it, and what is frozen there. No Keras import at the top."""

import numpy as np

POSITIONS = "positions/table"
ADDED = "added/layer_"
PATCH_KERNEL = "patch_embedding/projection/kernel"
# Kernels that see the channels of images; the first that a model has.
FIRST_KERNELS = ("backbone/root/conv_root/kernel", "backbone/conv_root/kernel", PATCH_KERNEL)
# Parts of our models; no model has all. BiT's "norm" is omitted: users of a ViT would mean "encoder/norm".
PARTS = (
    *("backbone", "patch_embedding", "class_token", "distillation_token", "register_tokens", "positions", "encoder"),
    *("pooling", "pooled_norm", "pre_logits", "head", "head_distillation"),
)


def named_weights(model) -> dict:
    """The model's variables by their path inside it, such as "encoder/block_0/mlp/hidden/kernel".

    Those of an `ImageClassifier`'s backbone have numbers, "backbone/0": names of its layers may differ in a copy. See
    `named_layers` for those of the layers of a subclass.
    """
    backbone = model.backbone.weights if getattr(model, "any_backbone", False) else ()
    added = [variable for layer in getattr(model, "_added_layers", ()) for variable in layer.weights]
    others = {"backbone": backbone, "added": added}
    names = {id(weight): f"{part}/{i}" for part, weights in others.items() for i, weight in enumerate(weights)}
    layers = {layer.path: name for name, layer in named_layers(model).items() if name.startswith(ADDED)}
    for variable in added:
        layer, _, name = variable.path.rpartition("/")
        if layer in layers:
            names[id(variable)] = f"{layers[layer]}/{name}"
    return {names.get(id(weight), weight.path.removeprefix(f"{model.path}/")): weight for weight in model.weights}


def named_layers(model) -> dict:
    """The layers inside a model or layer, at any depth, by their path inside it, such as "encoder/block_0/mlp/hidden".

    Those of an `ImageClassifier`'s backbone, which has a configuration of its own, are not among them. Those that a
    subclass adds have numbers, "added/layer_0", because Keras may name them otherwise in a copy.
    """
    from keras_vit.keras_internals import all_layers

    others = all_layers(model.backbone) if getattr(model, "any_backbone", False) else []
    added = [layer for added in getattr(model, "_added_layers", ()) for layer in all_layers(added)]
    prefix, seen = f"{model.path}/", set(map(id, [*others, *added]))
    layers = [layer for layer in all_layers(model) if (layer.path or "").startswith(prefix) and id(layer) not in seen]
    numbered = {f"{ADDED}{number}": layer for number, layer in enumerate(added)}
    return {**{layer.path.removeprefix(prefix): layer for layer in layers}, **numbered}


def merged_weights(model) -> dict:
    """`named_weights`, in which those of LoRA are added to their kernels, as in the files that Keras saves."""
    from keras_vit.keras_internals import has_lora

    weights, layers = named_weights(model), named_layers(model)
    for path in [path for path, layer in layers.items() if has_lora(layer)]:
        weights[f"{path}/kernel"] = layers[path].kernel
        del weights[f"{path}/lora_kernel_a"], weights[f"{path}/lora_kernel_b"]
    return weights


def in_part(name: str, parts) -> bool:
    """Whether a slash-separated name is one of the parts or inside one, as "head/bias" is inside "head"."""
    return any(name == part or name.startswith(f"{part}/") for part in parts)


def frozen_parts(model) -> tuple[str, ...]:
    """Paths of the parts of a model, as large as possible, and of the weights that are not trained."""
    weights = named_weights(model)
    trained = {part for name, variable in weights.items() if variable.trainable for part in _parts_around(name)}
    frozen = (next((part for part in _parts_around(name) if part not in trained), None) for name in weights)
    return tuple(dict.fromkeys(filter(None, frozen)))


def _parts_around(name):
    """The parts that a weight is inside, largest first, and itself: "a", "a/b" and "a/b/c" of "a/b/c"."""
    names = name.split("/")
    return ["/".join(names[: i + 1]) for i in range(len(names))]


def freeze(model, parts):
    """Freezes the layers and weights inside a model that have these paths; see `frozen_parts`."""
    for path, layer in named_layers(model).items():
        if in_part(path, parts):
            layer.trainable = False
    for name, variable in named_weights(model).items():
        if in_part(name, parts):
            variable.trainable = False


def as_parts(skip, names) -> tuple[str, ...]:
    """`skip` as a tuple, one part or several."""
    parts = (skip,) if isinstance(skip, str) else tuple(skip)
    for part in parts:
        if part not in PARTS and not any(in_part(name, (part,)) for name in names):
            raise ValueError(
                f"Unknown part to skip: {part!r}. Parts are {', '.join(PARTS)}, and paths inside them such as "
                "encoder/block_0."
            )
    return parts


def first_kernel(names) -> str | None:
    """Which of these weights sees the channels of images."""
    return next((name for name in FIRST_KERNELS if name in names), None)


def with_channels(kernel, channels: int):
    """A first kernel (P, Q, C, D) for images of other channels, (P, Q, channels, D): timm's `adapt_input_conv`.

    The sum over C for one channel, so that gray images have the outputs of gray RGB images; else kernels are repeated
    in their order and scaled by C / channels.
    """
    old = kernel.shape[2]
    if channels in (1, old):
        return kernel if channels == old else kernel.sum(axis=2, keepdims=True)
    return (kernel[:, :, np.arange(channels) % old] * (old / channels)).astype(kernel.dtype)
