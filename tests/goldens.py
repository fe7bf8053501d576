"""Weights of golden models, which are too large to store: they are random, with seeds from their names.

Names and shapes (data/golden_shapes.json) are enough to generate them again. A checksum shows whether NumPy still
generates the same numbers.
"""

import json
import re
import zlib
from pathlib import Path

import numpy as np
from safetensors.numpy import save_file

DATA = Path(__file__).parent / "data"
# Files beside the weights of foundation models, by name, and arguments that no file has.
_CONFIG = {"config.json": {"num_attention_heads": 3, "image_size": 28}}
_QUICK = {"open_clip_config.json": {"model_cfg": {"quick_gelu": True, "vision_cfg": {"width": 24, "head_width": 8}}}}
_TIMM = {"model_args": {"num_heads": 3}, "pretrained_cfg": {"input_size": [3, 28, 28]}}
FOUNDATION: dict[str, tuple[dict, dict]] = {
    "timm_dino": ({}, {"num_heads": 3}),
    "timm_dinov2": ({}, {"num_heads": 3}),
    "timm_dinov2_g": ({}, {"num_heads": 3}),
    "timm_clip": ({"config.json": {"architecture": "vit_toy_clip_quickgelu_28"}}, {"num_heads": 3}),
    "timm_siglip": ({"config.json": {"architecture": "vit_toy_patch32_siglip_28"}}, {"num_heads": 3}),
    "timm_siglip_gap": ({}, {"num_heads": 3}),
    "hf_dinov2": (_CONFIG, {}),
    "hf_dinov2_reg": (_CONFIG, {}),
    "hf_dinov2_g": (_CONFIG, {}),
    "hf_clip": (_CONFIG, {}),
    "hf_siglip": ({"config.json": {"vision_config": {"num_attention_heads": 3, "image_size": 32}}}, {}),
    "dino": ({}, {"num_heads": 3, "resample": "bicubic_offset"}),
    "dinov2": ({}, {"num_heads": 3}),
    "dinov2_reg": ({}, {"num_heads": 3}),
    "openai_clip": (_QUICK, {}),
    "dinov3": ({"config.json": _TIMM}, {}),
    "hf_dinov3": (_CONFIG, {}),
    "hf_dinov3_plus": ({"config.json": {**_CONFIG["config.json"], "hidden_act": "silu"}}, {}),
    **{
        f"timm_{name}": ({"config.json": {"architecture": architecture, **_TIMM, "global_pool": pooling}}, {})
        for name, architecture, pooling in (
            ("dinov3", "vit_small_patch16_dinov3", "token"),
            ("dinov3_plus", "vit_small_plus_patch16_dinov3_qkvb", "token"),
            ("rope", "vit_small_patch16_rope_224", "token"),
            ("rope_ape", "vit_small_patch16_rope_ape_224", "token"),
            ("rope_reg", "vit_medium_patch16_rope_reg1_gap_256", "avg"),
            ("eva02", "eva02_tiny_patch14_224", "avg"),
            ("eva", "eva_giant_patch14_224", "avg"),
        )
    },
}
GOLDENS = json.loads((DATA / "golden_shapes.json").read_text())


def golden_weights(golden: str) -> dict[str, np.ndarray]:
    """The float32 weights of a golden model under the names of the original implementation."""
    entry = GOLDENS[golden]
    arrays = random_weights(entry["shapes"])
    assert _checksum(arrays) == entry["checksum"], "NumPy no longer generates the numbers of the golden model."
    return arrays


def random_weights(shapes) -> dict[str, np.ndarray]:
    """Arrays of these shapes, by name."""
    return {name: _random(name, shape) for name, shape in shapes.items()}


def write_golden(golden: str, weights, **arrays):
    """Stores shapes and checksum of `random_weights`, and the images and outputs of a model with them."""
    shapes = {name: list(array.shape) for name, array in weights.items()}
    GOLDENS[golden] = {"checksum": _checksum(weights), "shapes": shapes}
    text = json.dumps(dict(sorted(GOLDENS.items())), indent=2)
    in_one_line = re.sub(
        r"\[[\d,\s]*\]", lambda found: " ".join(found[0].split()).replace("[ ", "[").replace(" ]", "]"), text
    )
    (DATA / "golden_shapes.json").write_text(f"{in_one_line}\n")
    np.savez(DATA / f"{golden}_io.npz", **arrays)


def golden_file(folder, golden: str, **changes) -> Path:
    """Writes the weights of a golden model to `folder`; `changes` replace arrays by name, None omits one."""
    arrays = {**golden_weights(golden), **changes}
    arrays = {name: array for name, array in arrays.items() if array is not None}
    return write_arrays(Path(folder) / (f"{golden}.npz" if _is_jax(golden) else f"{golden}.safetensors"), arrays)


def foundation_folder(folder, golden: str) -> Path:
    """Writes a foundation model as its project publishes it: model.safetensors and the files beside it."""
    for file, content in FOUNDATION[golden][0].items():
        (Path(folder) / file).write_text(json.dumps(content))
    write_arrays(Path(folder) / "model.safetensors", golden_weights(golden))
    return Path(folder)


def write_arrays(path, arrays) -> Path:
    """Writes named arrays to an .npz or .safetensors file."""
    if path.suffix == ".npz":
        np.savez(path, **arrays)
    else:
        save_file({name: np.ascontiguousarray(array) for name, array in arrays.items()}, path)
    return path


def golden_io(golden: str):
    """Images in [-1, 1] and the outputs of the original implementation."""
    return np.load(DATA / f"{golden}_io.npz")


def _is_jax(golden):
    return golden.startswith(("vit_jax", "big_vision"))


def _random(name, shape):
    normal = np.random.default_rng(zlib.crc32(name.encode())).standard_normal(shape).astype("float32")
    layer, _, leaf = ("/" + name.replace(".", "/")).rpartition("/")
    if leaf == "kernel" or (leaf == "weight" and len(shape) > 1):
        inputs = shape[1:] if leaf == "weight" else shape[:-1]
        fan_in = shape[0] if layer.endswith(("/query", "/key", "/value")) else np.prod(inputs)
        return (normal / np.sqrt(np.float64(fan_in))).astype("float32")
    if leaf in ("scale", "weight", "gamma"):
        return 1 + np.float32(0.1) * normal
    return np.float32({"bias": 0.05, "reg_token": 0.5}.get(leaf, 0.3)) * normal


def _checksum(arrays):
    total = 0
    for name in sorted(arrays):
        total = zlib.crc32(arrays[name].tobytes(), total)
    return total
