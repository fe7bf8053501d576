"""Which model a file was made for, read from the names and shapes of its arrays and from the config.json beside it."""

import math
import re

from keras_vit.layers.resnet.backbone import ROOT_STRIDE
from keras_vit.weights.files import Tensors

# Words in the names of timm's models whose blocks or activations are others than the paper's.
OTHER_BLOCKS = ("siglip", "clip", "_rpn_", "_18x2_", "_36x1_", "_xp_", "wee_", "_miil", "radio", "intern", "tips")
_TIMM_UNIT = r"patch_embed\.backbone\.stages\.(\d+)\.blocks\.(\d+)\."


def from_jax(tensors: Tensors) -> dict:
    """Arguments of the VisionTransformer that a file of vision_transformer or big_vision was made for."""
    shapes = tensors.shapes
    height, width_px, _, width = _conv_shape(tensors, "embedding/kernel")
    depth = _depth(shapes, r"Transformer/encoderblock_(\d+)/")
    block = "Transformer/encoderblock_0"
    heads = shapes[f"{block}/MultiHeadDotProductAttention_0/query/bias"][0]
    has_token, has_map = "cls" in shapes, any(name.startswith("MAPHead_0/") for name in shapes)
    stages = _stages(shapes)
    stride = _stride(stages)
    old = "Transformer/posembed_input/pos_embedding"
    rows = shapes.get(old, shapes.get("pos_embedding"))
    patch_size = (height * stride, width_px * stride)
    return {
        "image_size": None if rows is None else _square(rows[1] - (has_token and old in shapes), patch_size),
        "patch_size": patch_size,
        "depth": depth,
        "width": width,
        "mlp_dim": shapes[f"{block}/MlpBlock_0/Dense_0/bias"][0],
        "num_heads": heads,
        "num_classes": shapes.get("head/bias", (0,))[0],
        "pooling": "map" if has_map else "token" if has_token else "gap",
        "class_token": has_token,
        "representation_size": shapes.get("pre_logits/bias", (None,))[0],
        "position_embedding": "sincos_2d" if rows is None else "learned_1d",
        "prefix_positions": old in shapes,
        "resnet_stages": stages,
    }


def from_bit(tensors: Tensors) -> tuple[str, dict]:
    """Key in `SOURCES` and arguments of the `BiT` that a file of big_vision or big_transfer was made for."""
    shapes = tensors.shapes
    if "resnet/root_block/standardized_conv2d/kernel" in shapes:
        source, root, head = "bit_models", "resnet/root_block/standardized_conv2d", "resnet/head/conv2d"
    elif "root_block/conv_root/kernel" in shapes:
        source, root, head = "bit_paper", "root_block/conv_root", "head"
    else:
        source, root, head = "bit_v1", "conv_root", "head"
    return source, {
        "stages": _stages(shapes, f"{root}/kernel"),
        "width_factor": _conv_shape(tensors, f"{root}/kernel")[3] // 64,
        "num_classes": shapes.get(f"{head}/bias", (0,))[0],
        "form": "v1" if source == "bit_v1" else "paper",
        "pool_padding": "edge" if source == "bit_paper" else "zeros",
    }


def from_hugging_face(tensors: Tensors, config: dict) -> dict:
    """Arguments of the VisionTransformer that a file of transformers was made for; `config` is its config.json.

    `num_heads` is None where that does not say it; so of `from_timm`.
    """
    shapes = tensors.shapes
    width, _, height, width_px = _conv_shape(tensors, "embeddings.patch_embeddings.projection.weight")
    if not config.get("qkv_bias", True):
        raise ValueError(f"{tensors.path}: qkv_bias is false in config.json; queries, keys and values need biases.")
    activation = config.get("hidden_act", "gelu")
    forms = {"gelu": "erf", "gelu_python": "erf"} | dict.fromkeys(
        ("gelu_new", "gelu_pytorch_tanh", "gelu_fast"), "tanh"
    )
    if activation not in forms:
        raise ValueError(f"{tensors.path}: hidden_act is {activation!r} in config.json. Known: {', '.join(forms)}")
    if "pooler.dense.bias" in shapes and config.get("pooler_act", "tanh") != "tanh":
        raise ValueError(f"{tensors.path}: pooler_act is {config['pooler_act']!r} in config.json. Known: tanh")
    two_heads = "distillation_classifier.weight" in shapes
    has_second = "embeddings.distillation_token" in shapes
    rows = shapes["embeddings.position_embeddings"][1]
    image_size, patch_size = config.get("image_size"), (height, width_px)
    if image_size is None:
        image_size = _square(rows - 1 - has_second, patch_size)
    return {
        "image_size": tuple(image_size) if isinstance(image_size, list) else image_size,
        "patch_size": patch_size,
        "depth": _depth(shapes, r"encoder\.layer\.(\d+)\."),
        "width": width,
        "mlp_dim": shapes["encoder.layer.0.intermediate.dense.bias"][0],
        "num_heads": config.get("num_attention_heads"),
        "num_classes": shapes.get("classifier.bias", (0,))[0],
        "distillation": two_heads,
        "register_tokens": int(has_second and not two_heads),
        "representation_size": shapes.get("pooler.dense.bias", (None,))[0],
        "gelu": forms[activation],
        "epsilon": config.get("layer_norm_eps", 1e-12),
    }


def from_timm(tensors: Tensors, config: dict) -> dict:
    """Arguments of the VisionTransformer that a file of timm was made for; `config` is its config.json."""
    shapes = tensors.shapes
    architecture = config.get("architecture", "")
    unknown = [word for word in OTHER_BLOCKS if word in architecture]
    unknown += sorted(name for name in shapes if name.startswith(("norm_pre.", "attn_pool.")))
    if unknown:
        raise ValueError(f"{tensors.path} is a variant of timm's that has no counterpart here: it has {unknown[0]!r}.")
    width, _, height, width_px = _conv_shape(tensors, "patch_embed.proj.weight")
    options = config.get("model_args", {})
    has_token, has_second = "cls_token" in shapes, "dist_token" in shapes
    registers = shapes.get("reg_token", (1, 0))[1]
    prefix, rows = has_token + has_second + registers, shapes["pos_embed"][1]
    stages = _stages(shapes, "patch_embed.backbone.stem.conv.weight", _TIMM_UNIT)
    stride = _stride(stages)
    patch_size, after = (height * stride, width_px * stride), "fc_norm.weight" in shapes
    size = options.get("img_size") or config.get("pretrained_cfg", {}).get("input_size", [None])[1:]
    size = tuple(size) if isinstance(size, (list, tuple)) and size else size or None
    prefix_positions = _has_prefix(rows, prefix, size, patch_size, options)
    image_size = size or _square(rows - prefix * prefix_positions, patch_size)
    pooled = options.get("global_pool") or config.get("global_pool") or ("avg" if after or not has_token else "token")
    poolings, gelus = {"avg": "gap", "token": "token"}, {None: "erf", "gelu": "erf", "gelu_tanh": "tanh"}
    for name, value, known in (("global_pool", pooled, poolings), ("act_layer", options.get("act_layer"), gelus)):
        if value not in known:
            names = ", ".join(filter(None, known))
            raise ValueError(f"{tensors.path}: {name} is {value!r} in config.json. Known: {names}")
    return {
        "image_size": image_size,
        "patch_size": patch_size,
        "depth": _depth(shapes, r"blocks\.(\d+)\."),
        "width": width,
        "mlp_dim": shapes["blocks.0.mlp.fc1.bias"][0],
        "num_heads": options.get("num_heads") or (16 if "base_patch16_gap" in architecture else None),
        "num_classes": shapes.get("head.bias", (0,))[0],
        "pooling": poolings[pooled],
        "class_token": has_token,
        "distillation": has_second,
        "register_tokens": registers,
        "prefix_positions": prefix_positions,
        "resnet_stages": stages,
        "resnet_form": "v1" if stages is None else "timm",
        "gelu": gelus[options.get("act_layer")],
        "layer_scale": 1e-5 if "blocks.0.ls1.gamma" in shapes else None,
        "qk_norm": "blocks.0.attn.q_norm.weight" in shapes,
        "norm_after_pooling": after,
    }


def from_keras_peer(tensors: Tensors, config: dict) -> dict:
    """Arguments of the VisionTransformer that equals a model of KerasHub or tf-models-official; see keras_peers.py."""
    shapes, made = tensors.shapes, config.get("config", {})
    height, width_px, _, width = _conv_shape(tensors, "patch_embedding/kernel")
    has_token, has_second = "class_token" in shapes, "distillation_token" in shapes
    pooling, patch_size = config.get("task", {}).get("pooling", "token" if has_token else "gap"), (height, width_px)
    if pooling == "gap" and has_token:
        raise ValueError(
            f"{tensors.path}: KerasHub's pooling='gap' averages the class token too, which no layer here does. Use a "
            "model without a class token, or with pooling='token'."
        )
    image = made.get("image_shape", (None,))[:2]
    patches = shapes["positions"][1] - has_token - has_second
    return {
        "image_size": tuple(image) if None not in image else _square(patches, patch_size),
        "patch_size": patch_size,
        "depth": _depth(shapes, r"block(\d+)/"),
        "width": width,
        "mlp_dim": shapes["block0/mlp/dense_1/bias"][0],
        "num_heads": shapes["block0/mha/query/bias"][0],
        "num_classes": shapes.get("head/bias", (0,))[0],
        "pooling": pooling,
        "class_token": has_token,
        "register_tokens": int(has_second),
        "representation_size": shapes.get("pre_logits/bias", (None,))[0],
        "epsilon": made.get("layer_norm_epsilon", 1e-6),
        "layer_scale": 1e-5 if "block0/layer_scale_attn" in shapes else None,
    }


def _has_prefix(rows, prefix, size, patch_size, options):
    """Whether timm's position table has rows for the tokens before the patches."""
    if not prefix or options.get("no_embed_class") is not None:
        return not options.get("no_embed_class", False)
    if size:
        height, width = size if isinstance(size, tuple) else (size, size)
        return rows != (height // patch_size[0]) * (width // patch_size[1])
    return math.isqrt(rows) ** 2 != rows


def _conv_shape(tensors, name) -> tuple[int, ...]:
    shape = tensors.shapes[name]
    if len(shape) != 4:
        raise ValueError(f"{tensors.path}: {name} has the shape {shape}; the kernel of a convolution has four axes.")
    return shape


def _depth(shapes, pattern) -> int:
    numbers = [int(match[1]) for match in map(re.compile(pattern).match, shapes) if match]
    return max(numbers, default=-1) + 1


def _stages(shapes, root="conv_root/kernel", unit=r"(?:resnet/)?block(\d+)/unit(\d+)/"):
    """Units in each stage of a ResNet; () for a root alone, None without one."""
    if root not in shapes:
        return None
    units = {}
    for match in filter(None, map(re.compile(unit).match, shapes)):
        units.setdefault(int(match[1]), set()).add(match[2])
    return tuple(len(units[stage]) for stage in sorted(units))


def _stride(stages):
    """Pixels between the places of a ResNet's map; 1 without one."""
    return 1 if stages is None else ROOT_STRIDE * 2 ** max(len(stages) - 1, 0)


def usual_heads(width) -> int | None:
    """The number of heads of published models of a width, for files that do not say it; None if there are none."""
    if width in (1152, 1280, 1408, 1664):
        return 16
    return width // 64 if width and width % 64 == 0 and width <= 1024 else None


def _square(patches, patch_size):
    """(height, width) in pixels of a square grid; None if the number of patches is no square."""
    side = math.isqrt(patches)
    return (side * patch_size[0], side * patch_size[1]) if side * side == patches else None
