"""ViT, DeiT and ViTMAE of Hugging Face transformers: .safetensors files, config.json, preprocessor_config.json."""

import warnings

from keras_vit.weights.checkpoint import Checkpoint
from keras_vit.weights.files import Tensors, read_json
from keras_vit.weights.naming import Naming, Source
from keras_vit.weights.sources.arrays import (
    kernel_shape,
    num_blocks,
    read_arguments,
    respell,
    square_image_size,
    with_derived,
    zero_biases,
)

OUR_BLOCK, BLOCK = "encoder/block_{i}", "encoder.layer.{i}"
PATCHES = "embeddings.patch_embeddings.projection.weight"
MAE_DECODER = "decoder.decoder_embed.weight"
TORCH_LEAVES = {"gamma": "weight", "beta": "bias", "kernel": "weight", "bias": "bias"}
# models/vit and models/deit as versions 4 and 5 save them, without the leading "vit." or "deit.".
HUGGING_FACE = Source(
    "hugging_face",
    "Hugging Face transformers",
    Naming(
        {
            "patch_embedding/projection": ("embeddings.patch_embeddings.projection.",),
            f"{OUR_BLOCK}/norm_attention": (f"{BLOCK}.layernorm_before.",),
            f"{OUR_BLOCK}/attention/qkv": tuple(f"{BLOCK}.attention.attention.{x}." for x in ("query", "key", "value")),
            f"{OUR_BLOCK}/attention/out": (f"{BLOCK}.attention.output.dense.",),
            f"{OUR_BLOCK}/norm_mlp": (f"{BLOCK}.layernorm_after.",),
            f"{OUR_BLOCK}/mlp/hidden": (f"{BLOCK}.intermediate.dense.",),
            f"{OUR_BLOCK}/mlp/out": (f"{BLOCK}.output.dense.",),
            "encoder/norm": ("layernorm.",),
            "pre_logits": ("pooler.dense.",),
            "head": ("classifier.",),
            "head_distillation": ("distillation_classifier.",),
        },
        TORCH_LEAVES,
        {
            "positions/table": "embeddings.position_embeddings",
            "class_token/token": "embeddings.cls_token",
            "distillation_token/tokens": "embeddings.distillation_token",
            # A DeiT with one head was trained with the token but does not read it: a register.
            "register_tokens/tokens": "embeddings.distillation_token",
        },
        "torch",
    ),
    gelu="erf",
    epsilon=1e-12,
    resample="bicubic",
    preprocessing={"antialias": True},
)
# Names of other versions to those of the table.
SPELLINGS = (
    (r"^(vit|deit)\.", ""),
    (r"^layers\.(\d+)\.attention\.q_proj\.", r"encoder.layer.\1.attention.attention.query."),
    (r"^layers\.(\d+)\.attention\.k_proj\.", r"encoder.layer.\1.attention.attention.key."),
    (r"^layers\.(\d+)\.attention\.v_proj\.", r"encoder.layer.\1.attention.attention.value."),
    (r"^layers\.(\d+)\.attention\.o_proj\.", r"encoder.layer.\1.attention.output.dense."),
    (r"^layers\.(\d+)\.mlp\.fc1\.", r"encoder.layer.\1.intermediate.dense."),
    (r"^layers\.(\d+)\.mlp\.fc2\.", r"encoder.layer.\1.output.dense."),
    (r"^layers\.", "encoder.layer."),
    (r"^cls_classifier\.", "classifier."),
)
GELUS = {"gelu": "erf", "gelu_python": "erf", "quick_gelu": "quick"} | dict.fromkeys(
    ("gelu_new", "gelu_pytorch_tanh", "gelu_fast"), "tanh"
)
# Values of problem_type in config.json: a sigmoid for each class, and outputs that are no classes.
MULTI_LABEL, REGRESSION = "multi_label_classification", "regression"
# In a preprocessor_config.json that keras_vit wrote, whether mean and deviation are a guess; transformers ignores it.
ASSUMED = "image_mean_assumed"
PILLOW_FILTERS = {0: "nearest", 1: "lanczos3", 2: "bilinear", 3: "bicubic"}


def recognizes(tensors: Tensors) -> bool:
    """Whether a file holds a ViT, DeiT or ViTMAE of transformers."""
    return any(name.endswith(PATCHES) for name in tensors.shapes)


def read(tensors: Tensors, image_size) -> Checkpoint:
    """The checkpoint in a file, with the JSON files in its folder. `image_size` is ignored.

    The decoder of a ViTMAEForPreTraining or ViTForMaskedImageModeling is omitted: it is for pre-training only.
    """
    is_pretraining = MAE_DECODER in tensors or any(name.endswith("embeddings.mask_token") for name in tensors.shapes)
    tensors = tensors.without("decoder.") if is_pretraining else tensors
    tensors = tensors.renamed(lambda name: respell(name, SPELLINGS))
    preprocessor, config = read_preprocessor(tensors), read_json(tensors.path.with_name("config.json"))
    if not config.get("qkv_bias", True):
        biases = zero_biases(tensors, r".*\.attention\.(query|key|value)\.weight")
        if not biases:
            check_biases(tensors, config)
        tensors = with_derived(tensors, biases)
    arguments = read_arguments(_arguments, tensors, config)
    states_size = config.get("image_size") is not None
    return Checkpoint(tensors, HUGGING_FACE, arguments, preprocessing_fields(preprocessor), states_size=states_size)


def class_names(id2label: dict | None, num_classes: int) -> tuple[str, ...] | None:
    """The names in config.json; None if it has none but transformers' own LABEL_0, LABEL_1, ..."""
    names = [(id2label or {}).get(str(i)) for i in range(num_classes)]
    if not all(isinstance(name, str) and name.strip() for name in names) or names[:1] in ([], ["LABEL_0"]):
        return None
    return tuple(" ".join(str(name).split()) for name in names)


def head_arguments(num_classes: int, config: dict) -> dict:
    """What the outputs of a classifier are, by its config.json."""
    kind = config.get("problem_type") if num_classes else None
    names = None if kind == REGRESSION else class_names(config.get("id2label"), num_classes)
    return {
        "num_classes": num_classes,
        "class_names": names,
        "multi_label": kind == MULTI_LABEL,
        "projection": kind == REGRESSION,
    }


def check_biases(tensors: Tensors, config: dict):
    """Raises a ValueError for a config.json of a model whose attention has no biases."""
    if not config.get("qkv_bias", True):
        raise ValueError(f"{tensors.path}: qkv_bias is false in config.json; queries, keys and values need biases.")


def known_gelu(tensors: Tensors, config: dict, default: str = "gelu") -> str:
    """The form of the GELU that a config.json names; raises a ValueError for another activation."""
    activation = config.get("hidden_act", default)
    if activation not in GELUS:
        raise ValueError(f"{tensors.path}: hidden_act is {activation!r} in config.json. Supported: {', '.join(GELUS)}")
    return GELUS[activation]


def _arguments(tensors, config):
    shapes = tensors.shapes
    width, _, patch_height, patch_width = kernel_shape(tensors, PATCHES)
    gelu = known_gelu(tensors, config)
    if "pooler.dense.bias" in shapes and config.get("pooler_act", "tanh") != "tanh":
        raise ValueError(f"{tensors.path}: pooler_act is {config['pooler_act']!r} in config.json. Supported: tanh")
    has_two_heads = "distillation_classifier.weight" in shapes
    has_second_token = "embeddings.distillation_token" in shapes
    positions = shapes["embeddings.position_embeddings"][1]
    image_size, patch_size = config.get("image_size"), (patch_height, patch_width)
    if image_size is None:
        image_size = square_image_size(positions - 1 - has_second_token, patch_size)
    return {
        "image_size": tuple(image_size) if isinstance(image_size, list) else image_size,
        "patch_size": patch_size,
        "depth": num_blocks(shapes, r"encoder\.layer\.(\d+)\."),
        "width": width,
        "mlp_dim": shapes["encoder.layer.0.intermediate.dense.bias"][0],
        "num_heads": config.get("num_attention_heads"),
        **head_arguments(shapes.get("classifier.bias", (0,))[0], config),
        "class_token": True,
        "distillation": has_two_heads,
        "register_tokens": int(has_second_token and not has_two_heads),
        "representation_size": shapes.get("pooler.dense.bias", (None,))[0],
        "gelu": gelu,
        "epsilon": config.get("layer_norm_eps", 1e-12),
    }


def read_preprocessor(tensors: Tensors) -> dict:
    """The preprocessor of images beside a file; transformers 5 may write it in processor_config.json."""
    nested = read_json(tensors.path.with_name("processor_config.json")).get("image_processor")
    return nested or read_json(tensors.path.with_name("preprocessor_config.json"))


def preprocessing_fields(config: dict) -> dict:
    """Fields of `Preprocessing` of a preprocessor_config.json. Warns of an unknown filter, which is omitted."""
    fields: dict = {}
    # Theirs is (pixels * factor - mean) / std, ours (pixels / 255 - mean) / std.
    factor = 255.0 * (config.get("rescale_factor") or 1 / 255) if config.get("do_rescale", True) else 255.0
    mean, std = config.get("image_mean"), config.get("image_std")
    if not config.get("do_normalize", True):
        mean, std = (0.0,) * 3, (1.0,) * 3
    if mean is not None and std is not None:
        channels = {name: (x,) * 3 if isinstance(x, int | float) else x for name, x in (("mean", mean), ("std", std))}
        fields |= {name: tuple(x / factor for x in values) for name, values in channels.items()}
        if config.get(ASSUMED):
            fields["origin"] = "assumed"
    if config.get("resample") is not None:
        if config["resample"] in PILLOW_FILTERS:
            fields["interpolation"] = PILLOW_FILTERS[config["resample"]]
        else:  # no reason to reject the weights
            known = ", ".join(f"{number} ({name})" for number, name in PILLOW_FILTERS.items())
            warnings.warn(
                f"preprocessor_config.json has resample={config['resample']!r}. Supported: {known}. Images are resized "
                "bilinearly; for another interpolation pass preprocessing=keras_vit.Preprocessing(...).",
                stacklevel=2,
            )
    size, crop = _side(config.get("size")), _side(config.get("crop_size"))
    if config.get("do_center_crop") and size and crop:
        fields["crop_fraction"] = min(_sides_ratio(config["crop_size"], config["size"]) or crop / size, 1.0)
    if isinstance(config.get("size"), dict) and "shortest_edge" in config["size"]:
        fields["resize"] = "shortest"
    return fields


def image_size(config: dict) -> int | None:
    """Pixels of the square images that a preprocessor_config.json describes, None if it does not."""
    size = _side(config.get("crop_size" if config.get("do_center_crop") else "size"))
    return size if isinstance(size, int) else None


def _sides_ratio(crop, size):
    """The smaller ratio of heights and widths: `size_before_crop` then returns `size`. None unless both have both."""
    names = ("height", "width")
    if not all(isinstance(sides, dict) and all(map(sides.get, names)) for sides in (crop, size)):
        return None
    return min(crop[name] / size[name] for name in names)


def _side(size):
    return min(filter(None, size.values()), default=None) if isinstance(size, dict) else size
