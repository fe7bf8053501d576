"""The image towers of CLIP and SigLIP in open_clip's .safetensors files, and those of OpenAI's CLIP saved as such.

Names become timm's, which reads them: timm's models are inside open_clip's SigLIP. The projection of CLIP to the space
that it shares with texts, which has no bias, becomes the head.
"""

from keras_vit.weights.checkpoint import Checkpoint
from keras_vit.weights.files import Tensors, read_json
from keras_vit.weights.naming import Source
from keras_vit.weights.sources import timm
from keras_vit.weights.sources.arrays import read_arguments, reshaped, respell, transposed, with_derived, zeros

TOWER, TIMM_TOWER, TIMM_PROJECTION = "visual.", "visual.trunk.", "visual.head.proj."
TOKEN, POSITIONS, PROJECTION = "class_embedding", "positional_embedding", "proj"
RESNET = "visual.attnpool.positional_embedding"
# open_clip/transformer.py and CLIP's clip/model.py; preprocessing: open_clip/transform.py.
OPEN_CLIP = Source(
    "open_clip",
    "open_clip and OpenAI's CLIP (image towers)",
    timm.TIMM.naming,
    gelu="erf",
    epsilon=1e-6,
    resample="bicubic_antialias",
    preprocessing={"resize": "shortest", "interpolation": "bicubic", "antialias": True},
)
# In this order; blocks before the rest.
SPELLINGS = (
    (r"^transformer\.resblocks\.(\d+)\.", r"blocks.\1."),
    (r"\.ln_(\d)\.", r".norm\1."),
    (r"\.attn\.in_proj_", ".attn.qkv."),
    (r"\.attn\.out_proj\.", ".attn.proj."),
    (r"\.mlp\.c_fc\.", ".mlp.fc1."),
    (r"\.mlp\.c_proj\.", ".mlp.fc2."),
    (r"^ln_pre\.", "norm_pre."),
    (r"^ln_post\.", "norm."),
    (r"^conv1\.", "patch_embed.proj."),
    (f"^{TOKEN}$", "cls_token"),
    (f"^{POSITIONS}$", "pos_embed"),
    (r"\.ls_(\d)\.", r".ls\1."),
)
RESIZES = {"shortest": "shortest", "squash": "squash"}


def recognizes(tensors: Tensors) -> bool:
    """Whether a file holds a CLIP or SigLIP under the names of open_clip and OpenAI."""
    return any(name in tensors for name in (TOWER + TOKEN, TIMM_TOWER + timm.PATCHES, RESNET))


def read(tensors: Tensors, image_size) -> Checkpoint:
    """The checkpoint in a file, with open_clip_config.json in its folder. `image_size` is ignored.

    What belongs to the tower of texts is omitted.
    """
    if RESNET in tensors:
        raise ValueError(f"{tensors.path} is a CLIP with a ResNet, which is not supported. Use one with a ViT.")
    config = read_json(tensors.path.with_name("open_clip_config.json"))
    model = config.get("model_cfg", {})
    is_openai = TOWER + TOKEN in tensors
    is_projection = TOWER + PROJECTION in tensors or f"{TIMM_PROJECTION}weight" in tensors
    tensors = with_derived(tensors, {}, without=[name for name in tensors.shapes if not name.startswith(TOWER)])
    if is_openai:
        tensors = read_arguments(_arrays_of_openai, tensors.renamed(lambda name: name.removeprefix(TOWER)))
        arguments = read_arguments(timm.model_arguments, tensors, {}) | _config_arguments(tensors, model)
    else:
        tensors = read_arguments(_arrays_of_timm, tensors)
        architecture = model.get("vision_cfg", {}).get("timm_model_name") or ""
        arguments = read_arguments(timm.model_arguments, tensors, {"architecture": architecture})
    arguments["projection"] = is_projection
    return Checkpoint(tensors, OPEN_CLIP, arguments, _preprocessing_fields(config.get("preprocess_cfg", {})))


def _arrays_of_timm(tensors):
    """The arrays of timm's model inside one of open_clip, with a projection, if it has one, as head."""
    tensors = tensors.renamed(lambda name: name.removeprefix(TIMM_TOWER).replace(TIMM_PROJECTION, "head."))
    head = tensors.shapes.get("head.weight")
    bias = {"head.bias": zeros(head[0])} if head and "head.bias" not in tensors else {}
    return timm.plain_arrays(with_derived(tensors, bias))


def _arrays_of_openai(tensors):
    """The arrays of OpenAI's Vision Transformer as timm's."""
    for name in tensors.shapes:
        if name.startswith("attn_pool"):
            raise ValueError(f"{tensors.path} pools by {name}, as CoCa. This is not supported: use a CLIP or SigLIP.")
    rows, width = tensors.shapes[POSITIONS]
    derived = {
        POSITIONS: reshaped(tensors, POSITIONS, 1, rows, width),
        TOKEN: reshaped(tensors, TOKEN, 1, 1, width),
    }
    if PROJECTION in tensors:
        derived["head.weight"] = transposed(tensors, PROJECTION)
        derived["head.bias"] = zeros(tensors.shapes[PROJECTION][1])
    tensors = with_derived(tensors, derived, without=[PROJECTION])
    return timm.plain_arrays(tensors.renamed(lambda name: respell(name, SPELLINGS)))


def _config_arguments(tensors, model):
    """What open_clip_config.json states; without it, whether GELU is OpenAI's quick form is unknown."""
    vision = model.get("vision_cfg", {})
    others = [name for name in ("final_ln_after_pool", "attentional_pool", "block_type") if vision.get(name)]
    if vision.get("pool_type", "tok") != "tok" or others:
        raise ValueError(
            f"{tensors.path}: {', '.join(others) or 'pool_type'} in open_clip_config.json is not supported; use a CLIP "
            "whose image tower pools by its class token."
        )
    head_width, width = vision.get("head_width", 64), tensors.shapes["norm.weight"][0]
    return {
        "num_heads": width // head_width if model else None,
        "gelu": ("quick" if model.get("quick_gelu") else "erf") if model else None,
    }


def _preprocessing_fields(config):
    """Fields of `Preprocessing` of a preprocess_cfg."""
    fields = {name: tuple(config[name]) for name in ("mean", "std") if config.get(name)}
    if config.get("interpolation") in ("bicubic", "bilinear"):
        fields["interpolation"] = config["interpolation"]
    if config.get("resize_mode") in RESIZES:
        fields["resize"] = RESIZES[config["resize_mode"]]
    return fields
