"""What each peer calls our weights: one table a peer, and the older spellings that lead to it."""

import re

from keras_vit.weights.files import Tensors
from keras_vit.weights.naming import Naming
from keras_vit.weights.resnet_names import without_counter

BLOCK = "encoder/block_{i}"

_LINEN_BLOCK = "Transformer/encoderblock_{i}"
_LINEN_ATTENTION = f"{_LINEN_BLOCK}/MultiHeadDotProductAttention_0"
_LINEN_PARTS = {
    "patch_embedding/projection": ("embedding/",),
    f"{BLOCK}/norm_attention": (f"{_LINEN_BLOCK}/LayerNorm_0/",),
    f"{BLOCK}/attention/qkv": tuple(f"{_LINEN_ATTENTION}/{kind}/" for kind in ("query", "key", "value")),
    f"{BLOCK}/attention/out": (f"{_LINEN_ATTENTION}/out/",),
    f"{BLOCK}/norm_mlp": (f"{_LINEN_BLOCK}/LayerNorm_1/",),
    f"{BLOCK}/mlp/hidden": (f"{_LINEN_BLOCK}/MlpBlock_0/Dense_0/",),
    f"{BLOCK}/mlp/out": (f"{_LINEN_BLOCK}/MlpBlock_0/Dense_1/",),
    "encoder/norm": ("Transformer/encoder_norm/",),
    "pre_logits": ("pre_logits/",),
    "head": ("head/",),
}
_LINEN_LEAVES = {"gamma": "scale", "beta": "bias", "kernel": "kernel", "bias": "bias"}
_MAP = "MAPHead_0"

# google-research/vision_transformer, vit_jax/models_vit.py.
VIT_JAX = Naming(
    _LINEN_PARTS,
    _LINEN_LEAVES,
    {"positions/table": "Transformer/posembed_input/pos_embedding", "class_token/token": "cls"},
    "heads",
    "v1",
)
# google-research/big_vision, models/vit.py: positions of patches only, attention pooling.
BIG_VISION = Naming(
    _LINEN_PARTS
    | {f"pooling/{kind}": (f"{_MAP}/MultiHeadDotProductAttention_0/{kind}/",) for kind in ("query", "key", "value")}
    | {
        "pooling/out": (f"{_MAP}/MultiHeadDotProductAttention_0/out/",),
        "pooling/norm": (f"{_MAP}/LayerNorm_0/",),
        "pooling/mlp/hidden": (f"{_MAP}/MlpBlock_0/Dense_0/",),
        "pooling/mlp/out": (f"{_MAP}/MlpBlock_0/Dense_1/",),
    },
    _LINEN_LEAVES,
    {"positions/table": "pos_embedding", "class_token/token": "cls", "pooling/probe": f"{_MAP}/probe"},
    "heads",
)
# BiT: big_vision, models/bit.py and models/bit_paper.py, and the files of google-research/big_transfer.
BIT_V1, BIT_PAPER = (Naming({"head": ("head/",)}, {}, {}, "heads", form) for form in ("v1", "paper"))
BIT_MODELS = Naming({"head": ("resnet/head/conv2d/",)}, {}, {}, "heads", "bit_models")
_TORCH_LEAVES = {"gamma": "weight", "beta": "bias", "kernel": "weight", "bias": "bias"}
# transformers, models/vit and models/deit, as saved by versions 4 and 5, without the leading "vit." or "deit.".
HUGGING_FACE = Naming(
    {
        "patch_embedding/projection": ("embeddings.patch_embeddings.projection.",),
        f"{BLOCK}/norm_attention": ("encoder.layer.{i}.layernorm_before.",),
        f"{BLOCK}/attention/qkv": tuple(
            f"encoder.layer.{{i}}.attention.attention.{kind}." for kind in ("query", "key", "value")
        ),
        f"{BLOCK}/attention/out": ("encoder.layer.{i}.attention.output.dense.",),
        f"{BLOCK}/norm_mlp": ("encoder.layer.{i}.layernorm_after.",),
        f"{BLOCK}/mlp/hidden": ("encoder.layer.{i}.intermediate.dense.",),
        f"{BLOCK}/mlp/out": ("encoder.layer.{i}.output.dense.",),
        "encoder/norm": ("layernorm.",),
        "pre_logits": ("pooler.dense.",),
        "head": ("classifier.",),
        "head_distillation": ("distillation_classifier.",),
    },
    _TORCH_LEAVES,
    {
        "positions/table": "embeddings.position_embeddings",
        "class_token/token": "embeddings.cls_token",
        "distillation_token/tokens": "embeddings.distillation_token",
        # A DeiT of one head trained with the token and does not read it: a register.
        "register_tokens/tokens": "embeddings.distillation_token",
    },
    "torch",
)
# timm, models/vision_transformer.py and models/deit.py.
TIMM = Naming(
    {
        "patch_embedding/projection": ("patch_embed.proj.",),
        f"{BLOCK}/norm_attention": ("blocks.{i}.norm1.",),
        f"{BLOCK}/attention/qkv": ("blocks.{i}.attn.qkv.",),
        f"{BLOCK}/attention/query_norm": ("blocks.{i}.attn.q_norm.",),
        f"{BLOCK}/attention/key_norm": ("blocks.{i}.attn.k_norm.",),
        f"{BLOCK}/attention/out": ("blocks.{i}.attn.proj.",),
        f"{BLOCK}/scale_attention": ("blocks.{i}.ls1.gamma",),
        f"{BLOCK}/norm_mlp": ("blocks.{i}.norm2.",),
        f"{BLOCK}/mlp/hidden": ("blocks.{i}.mlp.fc1.",),
        f"{BLOCK}/mlp/out": ("blocks.{i}.mlp.fc2.",),
        f"{BLOCK}/scale_mlp": ("blocks.{i}.ls2.gamma",),
        "encoder/norm": ("norm.",),
        "pooled_norm": ("fc_norm.",),
        "head": ("head.",),
        "head_distillation": ("head_dist.",),
    },
    _TORCH_LEAVES,
    {
        "positions/table": "pos_embed",
        "class_token/token": "cls_token",
        "distillation_token/tokens": "dist_token",
        "register_tokens/tokens": "reg_token",
    },
    "torch",
    "timm",
)

# KerasHub and tf-models-official, as keras_peers.py spells them.
KERAS_PEERS = Naming(
    {
        "patch_embedding/projection": ("patch_embedding/",),
        f"{BLOCK}/norm_attention": ("block{i}/layer_norm_1/",),
        f"{BLOCK}/attention/qkv": tuple(f"block{{i}}/mha/{kind}/" for kind in ("query", "key", "value")),
        f"{BLOCK}/attention/out": ("block{i}/mha/output/",),
        f"{BLOCK}/scale_attention": ("block{i}/layer_scale_attn",),
        f"{BLOCK}/norm_mlp": ("block{i}/layer_norm_2/",),
        f"{BLOCK}/mlp/hidden": ("block{i}/mlp/dense_1/",),
        f"{BLOCK}/mlp/out": ("block{i}/mlp/dense_2/",),
        f"{BLOCK}/scale_mlp": ("block{i}/layer_scale_mlp",),
        "encoder/norm": ("norm/",),
        "pre_logits": ("pre_logits/",),
        "head": ("head/",),
    },
    {leaf: leaf for leaf in _LINEN_LEAVES},
    {
        "positions/table": "positions",
        "class_token/token": "class_token",
        "register_tokens/tokens": "distillation_token",
    },
    "heads",
)

PRE_LINEN = {
    "MultiHeadDotProductAttention_1": "MultiHeadDotProductAttention_0",
    "LayerNorm_2": "LayerNorm_1",
    "MlpBlock_3": "MlpBlock_0",
}
_STACKED = "Transformer/encoderblock/"


def linen(tensors: Tensors) -> Tensors:
    """Arrays of a JAX file under linen names, one a block.

    Prefixes of training states go; files from before Flax's linen API number all submodules of a block in one sequence
    (LayerNorm_0, MultiHeadDotProductAttention_1, LayerNorm_2, MlpBlock_3), linen numbers each kind from 0; scanned
    models of big_vision stack the layers' arrays; old files store GroupNorm as (1, 1, 1, C).
    """
    prefixes = ("params/", "opt/target/", "target/")
    prefix = next((p for p in prefixes if any(name.startswith(p) for name in tensors.shapes)), "")
    # In a whole training state the optimizer's arrays are beside the model's.
    kept = {name: shape for name, shape in tensors.shapes.items() if name.startswith(prefix)}
    tensors = Tensors(tensors.path, kept, tensors.read)

    def rename(name):
        name = without_counter(name.removeprefix(prefix))
        return "/".join(PRE_LINEN.get(part, part) for part in name.split("/"))

    return _unstacked(_squeezed(tensors.renamed(rename)))


def _squeezed(tensors):
    """Normalizations stored as (1, 1, 1, C) as (C,), and a head that is a convolution, (1, 1, C, classes), as dense."""

    def squeezed(name, shape):
        rank = 2 if name == "resnet/head/conv2d/kernel" else 1
        is_one = len(shape) == 4 and (rank == 2 or not name.endswith("kernel")) and set(shape[:-rank]) == {1}
        return shape[-rank:] if is_one else shape

    shapes = {name: squeezed(name, shape) for name, shape in tensors.shapes.items()}
    return Tensors(tensors.path, shapes, lambda name: tensors.read(name).reshape(shapes[name]))


def _unstacked(tensors):
    """Arrays of all blocks in one, (depth, ...), as arrays of each block."""
    stacked = {name: shape for name, shape in tensors.shapes.items() if name.startswith(_STACKED)}
    if not stacked:
        return tensors
    places = {
        name.replace(_STACKED, f"Transformer/encoderblock_{i}/"): (name, i)
        for name, shape in stacked.items()
        for i in range(shape[0])
    }
    shapes = {name: shape for name, shape in tensors.shapes.items() if name not in stacked}
    shapes |= {name: stacked[whole][1:] for name, (whole, _) in places.items()}
    held = {}  # each array is read once and held, with the blocks still to come, until its last block was asked for

    def read(name):
        if name not in places:
            return tensors.read(name)
        whole, i = places[name]
        if whole not in held:
            held[whole] = (tensors.read(whole), set(range(stacked[whole][0])))
        array, to_come = held[whole]
        to_come.discard(i)
        if not to_come:
            del held[whole]
        return array[i]

    return Tensors(tensors.path, shapes, read)


_HUGGING_FACE_SPELLINGS = (
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


def hugging_face(tensors: Tensors) -> Tensors:
    """Arrays of a transformers file under the names that versions 4 and 5 save, whatever the prefix and spelling."""

    def rename(name):
        for pattern, replacement in _HUGGING_FACE_SPELLINGS:
            name = re.sub(pattern, replacement, name)
        return name

    return tensors.renamed(rename)


def timm(tensors: Tensors) -> Tensors:
    """Arrays of a timm file; a hybrid on a root alone lacks the word stem."""
    return tensors.renamed(
        lambda name: re.sub(r"^patch_embed\.backbone\.(conv|norm)\.", r"patch_embed.backbone.stem.\1.", name)
    )
