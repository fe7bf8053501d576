"""The constructors that people import: `ViT_B16()` and its relatives, one line a variant."""

from keras_vit.models.vit import VisionTransformer
from keras_vit.variants import parse_variant
from keras_vit.weights.npz import head_of, load_npz, read_npz


def ViT(
    variant: str,
    weights: str | None = None,
    *,
    image_size=224,
    num_classes: int | None = None,
    weights_image_size=None,
    resample: str = "corners",
    **arguments,
) -> VisionTransformer:
    """Builds a Vision Transformer by name.

    Args:
        variant: Such as "B/16", see `keras_vit.variants`; any patch size.
        weights: An .npz file of google-research/vision_transformer, or None for random weights.
        image_size: Pixels, one number or (height, width); positions of the file are resampled to it.
        num_classes: By default those of the file, 1000 without one. Another number than the file's gives a new head of
            zeros, and drops the file's hidden tanh layer, as the paper does for fine-tuning. 0 for no head.
        weights_image_size: Picture size that the file was trained at, needed only if its grid of positions is not
            square.
        resample: How positions are resampled, see `resample_grid`.
        **arguments: Of `VisionTransformer`: pooling, class_token, representation_size, dropout, gelu, dtype, ...

    Raises:
        FileNotFoundError, ValueError: The variant is unknown, the arguments do not fit each other, or the file does not
            fit the model.
    """
    size, patch_size = parse_variant(variant)
    shape = {"depth": size.depth, "width": size.width, "mlp_dim": size.mlp_dim, "num_heads": size.num_heads}
    arguments = {"name": f"ViT_{variant.replace('/', '')}", **shape, **arguments}
    arguments |= {"image_size": image_size, "patch_size": patch_size}
    if weights is None:
        return VisionTransformer(num_classes=1000 if num_classes is None else num_classes, **arguments)

    if not str(weights).endswith(".npz"):
        raise ValueError(
            f"`weights` must name an .npz file of google-research/vision_transformer. Received: {weights!r}. "
            "A model saved by Keras is opened with keras.saving.load_model(file), a .weights.h5 file with "
            "model.load_weights(file)."
        )
    arrays = read_npz(weights)
    file_classes, file_hidden = head_of(arrays)
    num_classes = (file_classes or 0) if num_classes is None else num_classes
    keeps_head = num_classes == (file_classes or 0)
    if keeps_head:
        arguments.setdefault("representation_size", file_hidden)
    model = VisionTransformer(num_classes=num_classes, **arguments)
    skip = () if keeps_head else ("head",) if model.pre_logits else ("head", "pre_logits")
    load_npz(model, weights, skip, weights_image_size, resample, arrays)
    return model


def _constructor(variant: str):
    def build(weights: str | None = None, **arguments) -> VisionTransformer:
        return ViT(variant, weights, **arguments)

    build.__name__ = build.__qualname__ = f"ViT_{variant.replace('/', '')}"
    build.__doc__ = (
        f"ViT-{variant}: `keras_vit.ViT({variant!r}, weights, **arguments)`, where the arguments are explained."
    )
    return build


ViT_Ti16 = _constructor("Ti/16")
ViT_S32 = _constructor("S/32")
ViT_S16 = _constructor("S/16")
ViT_B32 = _constructor("B/32")
ViT_B16 = _constructor("B/16")
ViT_B8 = _constructor("B/8")
ViT_L32 = _constructor("L/32")
ViT_L16 = _constructor("L/16")
ViT_L14 = _constructor("L/14")
ViT_H16 = _constructor("H/16")
ViT_H14 = _constructor("H/14")
ViT_g14 = _constructor("g/14")
ViT_G14 = _constructor("G/14")
