"""DINOv3, RoPE-ViT, EVA and EVA-02 of timm (models/eva.py): .safetensors files with config.json.

Also DINOv3 of its authors, saved as .safetensors. Their arrays become those of timm's ViT.
"""

import re

import numpy as np

from keras_vit.weights.checkpoint import Checkpoint
from keras_vit.weights.files import Tensors
from keras_vit.weights.sources import timm
from keras_vit.weights.sources.arrays import Derived, kernel_shape, num_blocks, read_arguments, respell, with_derived

# Names of eva.py, and before these of DINOv3's authors, to those of timm's ViT.
SPELLINGS = (
    (r"\.gamma_(\d)$", r".ls\1.gamma"),
    (r"^storage_tokens$", "reg_token"),
    (r"\.mlp\.w1\.", ".mlp.fc1_g."),
    (r"\.mlp\.w2\.", ".mlp.fc1_x."),
    (r"\.mlp\.w3\.", ".mlp.fc2."),
)
# For the pre-training only, or computed.
OMITTED = re.compile(r"mask_token|local_cls_norm\.|rope_embed\.|rope\.periods|.*\.bias_mask")
# Arrays of models that differ in more than the names, and how.
OTHER_ARRAYS = {
    "rope.freqs": "learned frequencies of its rotary positions (RoPE-Mixed)",
    "blocks.0.mlp.norm.weight": "a normalization within its MLPs",
    "blocks.0.attn.norm.weight": "a normalization within its attention",
    "norm_pre.weight": timm.PERCEPTION_ENCODER,
    "blocks.0.attn.wq.weight": "keys and values that several heads of queries share",
}
DINOV3 = {"position_embedding": "rotary", "rotary_theta": 100.0, "rotary_coordinates": "centers", "epsilon": 1e-5}
ROPE_VIT = {"position_embedding": "rotary", "rotary_theta": 100.0, "rotary_coordinates": "indices"}
EVA02 = {"position_embedding": "rotary", "rotary_theta": 10_000.0, "rotary_coordinates": (16, 16)}
# Parts of the names of models, and the arguments that their definitions have, but not their files.
FORMS: tuple[tuple[str, dict], ...] = (
    (r"dinov3|lingbot", DINOV3),
    (r"_rope_(ape_)?\d", ROPE_VIT),
    (r"eva02_(tiny|small)|_rope_reg\d", EVA02),
    (r"eva_giant", {}),
)


def recognizes(tensors: Tensors) -> bool:
    """Whether a file holds a model of timm's eva.py, or a DINOv3 of its authors."""
    own = ("storage_tokens", *(f"blocks.0.{name}" for name in ("gamma_1", "attn.q_bias", "attn.q_proj.weight")))
    return timm.PATCHES in tensors and any(name in tensors for name in own)


def read(tensors: Tensors, image_size) -> Checkpoint:
    """The checkpoint in a file, with config.json in its folder. `image_size` overrides that of config.json."""
    config = timm.read_config(tensors, image_size)
    architecture = config.get("architecture", "")
    timm.check_supported(tensors, architecture)
    for name, difference in OTHER_ARRAYS.items():
        if name in tensors:
            raise ValueError(f"{tensors.path} is a model of timm that is not supported: it has {difference}.")
    form = _form(tensors, architecture)
    _check_options(tensors, config.get("model_args", {}))
    if form is DINOV3 and "reg_token" in tensors and "lingbot" not in architecture:
        config = {"global_pool": "avg", **config}  # as timm's definition; the authors read the class token
    width = kernel_shape(tensors, timm.PATCHES)[0]
    heads = config.get("model_args", {}).get("num_heads") or (16 if width == 1408 else max(width // 64, 1))
    tensors = read_arguments(_plain_arrays, tensors, heads, form)
    arguments = read_arguments(timm.model_arguments, tensors, config, bool(form)) | {"num_heads": heads, **form}
    if form and "pos_embed" in tensors:
        arguments["position_embedding"] = "learned_1d_and_rotary"
    return timm.checkpoint(tensors, arguments, config)


def _check_options(tensors, options):
    """Raises a ValueError for options of the positions and blocks that the arrays do not show."""
    for name, value in options.items():
        if name.startswith("rope_") or name in ("ref_feat_shape", "use_rot_pos_emb", "use_post_norm"):
            raise ValueError(
                f"{tensors.path}: {name} is {value!r} in config.json; only the values of timm's published models are "
                "supported, without it. Use timm."
            )


def _form(tensors, architecture):
    """Arguments of the positions; raises a ValueError for an unknown model."""
    for pattern, form in FORMS:
        if re.search(pattern, architecture):
            return form
    if "pos_embed" not in tensors and (
        "storage_tokens" in tensors or {"cls_token", "reg_token"} <= tensors.shapes.keys()
    ):
        return DINOV3
    raise ValueError(
        f"{tensors.path} is a model of timm's eva.py whose positions its file does not state. Received: "
        f"{f'the architecture {architecture!r}' if architecture else 'no architecture'} in a config.json beside it. "
        "Expected the config.json that timm publishes, with the name of a DINOv3, vit_*_rope, eva02_tiny, eva02_small "
        "or eva_giant."
    )


def _plain_arrays(tensors, heads, form):
    """The arrays that timm's ViT has: one bias of queries, keys and values, one kernel of a gated MLP.

    Channels of queries and keys are in the order of `RotaryPositions`.
    """
    omitted = [name for name in tensors.shapes if OMITTED.match(name)]
    tensors = with_derived(tensors, {}, without=omitted).renamed(lambda name: respell(name, SPELLINGS))
    tensors = timm.plain_arrays(tensors)
    arrays: dict[str, Derived] = {}
    merged: list[str] = []
    for i in range(num_blocks(tensors.shapes, r"blocks\.(\d+)\.")):
        attention, mlp = f"blocks.{i}.attn.", f"blocks.{i}.mlp."
        if f"{attention}q_bias" in tensors:
            merged += (biases := [f"{attention}q_bias", f"{attention}v_bias"])
            arrays[f"{attention}qkv.bias"] = _with_zero_keys(tensors, *biases)
        elif f"{attention}qkv.bias" in tensors and form is DINOV3:  # the authors mask the keys' bias
            arrays[f"{attention}qkv.bias"] = _masked_keys(tensors, f"{attention}qkv.bias")
        for leaf in ("weight", "bias"):
            halves = [f"{mlp}fc1_g.{leaf}", f"{mlp}fc1_x.{leaf}"]
            if halves[0] in tensors:
                arrays[f"{mlp}fc1.{leaf}"] = _joined(tensors, halves)
                merged += halves
    plain = with_derived(tensors, arrays, without=merged)
    if form in (ROPE_VIT, EVA02):
        names = [name for name in plain.shapes if re.fullmatch(r"blocks\.\d+\.attn\.qkv\.(weight|bias)", name)]
        plain = with_derived(plain, {name: _halves(plain, name, heads, form is ROPE_VIT) for name in names})
    return plain


def _with_zero_keys(tensors, query, value):
    (width,) = tensors.shapes[query]
    keys = np.zeros(width, "float32")
    return Derived((3 * width,), lambda: np.concatenate([tensors.read(query), keys, tensors.read(value)]))


def _masked_keys(tensors, name):
    (size,) = tensors.shapes[name]
    mask = np.repeat([1, 0, 1], size // 3)
    return Derived((size,), lambda: np.where(mask, tensors.read(name), 0))


def _joined(tensors, names):
    rows, *others = tensors.shapes[names[0]]
    return Derived((2 * rows, *others), lambda: np.concatenate([tensors.read(name) for name in names]))


def _halves(tensors, name, heads, columns_first):
    """Rows of queries and keys, (3 D, ...), in pairs of neighbors -> in pairs of halves, rows of the grid first."""

    def compute():
        query_key_value = tensors.read(name)
        rows, *others = query_key_value.shape
        pairs = query_key_value[: rows * 2 // 3].reshape(2 * heads, -1, 2, *others)  # (2 K, d / 2, 2, ...)
        if columns_first:
            pairs = np.roll(pairs, pairs.shape[1] // 2, axis=1)
        halves = pairs.swapaxes(1, 2).reshape(-1, *others)  # (2 D, ...)
        return np.concatenate([halves, query_key_value[rows * 2 // 3 :]])

    return Derived(tensors.shapes[name], compute)
