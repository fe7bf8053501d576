"""Outputs of small DINO, DINOv2, CLIP and SigLIP models, computed by the code of those who publish them.

In an environment with torch, timm and transformers; for the authors' code also in clones of their repositories:
    python benchmarks/foundation_goldens.py timm
    python benchmarks/foundation_goldens.py transformers
    python benchmarks/foundation_goldens.py authors DINO DINOV2 CLIP    # facebookresearch/dino and dinov2, openai/CLIP
Weights are random, with seeds from their names (tests/goldens.py), and are generated again by the tests. Images are
small: what is compared are names, the order of operations, activations, epsilons and the resampling of positions.
"""

import importlib.util
import sys
import tempfile
from functools import partial
from pathlib import Path

import numpy as np
import torch
from safetensors import safe_open
from safetensors.numpy import save_file

sys.path.insert(0, str(Path(__file__).parents[1] / "tests"))

from goldens import random_weights, write_golden

SIDE, PATCH, WIDTH, HEADS, DEPTH = 28, 7, 24, 3, 2
SIZES = {"img_size": SIDE, "patch_size": PATCH, "embed_dim": WIDTH, "depth": DEPTH, "num_heads": HEADS}


def images(side=SIDE):
    """(2, side, side, 3)."""
    return np.random.default_rng(side).uniform(-1, 1, (2, side, side, 3)).astype("float32")


def golden(name, model, weights, call=lambda model, given: model(given), others=(), side=SIDE):
    """Writes weights and outputs of a PyTorch model.

    Args:
        name: Name of the golden.
        model: The model, with these weights.
        weights: Arrays under the names of published files.
        call: Function of the model and images (B, 3, H, W).
        others: Sides of other images, for which the model resamples its positions.
        side: Of the images.
    """
    arrays = {}
    for pixels in (side, *others):
        given = torch.from_numpy(images(pixels).transpose(0, 3, 1, 2).copy())
        with torch.no_grad():
            found = call(model.eval(), given)
        suffix = "" if pixels == side else f"_{pixels}px"
        arrays |= {f"images{suffix}": images(pixels), f"outputs{suffix}": found.numpy()}
    write_golden(name, weights, **arrays)


def randomized(model, prefix=""):
    """A PyTorch model with random weights, and the weights; `prefix` starts their names in published files."""
    shapes = {f"{prefix}{name}": list(tensor.shape) for name, tensor in model.state_dict().items()}
    weights = random_weights(shapes)
    model.load_state_dict({name.removeprefix(prefix): torch.tensor(array) for name, array in weights.items()})
    return model, weights


def randomized_file(model):
    """As `randomized`, under the names that transformers saves, which are not those of its modules."""
    with tempfile.TemporaryDirectory() as folder:
        model.save_pretrained(folder)
        file = f"{folder}/model.safetensors"
        with safe_open(file, "np") as saved:
            shapes = {name: saved.get_slice(name).get_shape() for name in saved.keys()}
        weights = random_weights(shapes)
        save_file(weights, file, metadata={"format": "pt"})
        return type(model).from_pretrained(folder), weights


def timm_goldens():
    from timm.layers import SwiGLUPacked
    from timm.models.vision_transformer import VisionTransformer

    gated = {"mlp_layer": SwiGLUPacked, "act_layer": torch.nn.SiLU, "reg_tokens": 2, "no_embed_class": True}
    clip = {"pre_norm": True, "norm_layer": partial(torch.nn.LayerNorm, eps=1e-5), "act_layer": "quick_gelu"}
    siglip = {"class_token": False, "num_classes": 0}
    for name, options in {
        "timm_dino": {"num_classes": 0},
        "timm_dinov2": {"num_classes": 0, "init_values": 1e-5},
        "timm_dinov2_g": {"num_classes": 0, "init_values": 1e-5, **gated},
        "timm_clip": {"num_classes": 10, **clip},
        "timm_siglip": {**siglip, "global_pool": "map", "act_layer": "gelu_tanh"},
        "timm_siglip_gap": {**siglip, "global_pool": "avg", "fc_norm": False},
    }.items():
        golden(name, *randomized(VisionTransformer(**SIZES, **options)))


def transformers_goldens():
    import transformers as hf

    sizes = {"image_size": SIDE, "patch_size": PATCH, "hidden_size": WIDTH, "num_hidden_layers": DEPTH}
    sizes |= {"num_attention_heads": HEADS}
    others, resized = (SIDE + 3 * PATCH, SIDE - PATCH), {"interpolate_pos_encoding": True}

    def pooled(model, given):
        return model(given).pooler_output

    golden("hf_dinov2", *randomized_file(hf.Dinov2Model(hf.Dinov2Config(**sizes))), pooled, others)
    config = hf.Dinov2WithRegistersConfig(**sizes, num_register_tokens=2)
    golden("hf_dinov2_reg", *randomized_file(hf.Dinov2WithRegistersModel(config)), pooled, others)
    model = hf.Dinov2ForImageClassification(hf.Dinov2Config(**sizes, use_swiglu_ffn=True, num_labels=5))
    golden("hf_dinov2_g", *randomized_file(model), lambda model, given: model(given).logits)
    sizes["intermediate_size"] = 3 * WIDTH
    model = hf.CLIPVisionModelWithProjection(hf.CLIPVisionConfig(**sizes, projection_dim=10))
    golden("hf_clip", *randomized_file(model), lambda model, given: model(given, **resized).image_embeds, others)
    side = sizes["image_size"] = SIDE + 4  # the last 4 rows and columns are in no patch
    model = hf.SiglipVisionModel(hf.SiglipVisionConfig(**sizes))
    golden(
        "hf_siglip", *randomized_file(model), lambda model, given: model(given, **resized).pooler_output, others, side
    )


def authors_goldens(dino, dinov2, clip):
    sys.path[:0] = [dino, dinov2]
    from dinov2.models.vision_transformer import DinoVisionTransformer

    first = module("vision_transformer", Path(dino) / "vision_transformer.py").VisionTransformer
    others = (SIDE + 3 * PATCH, SIDE - PATCH)
    norm = partial(torch.nn.LayerNorm, eps=1e-6)
    golden("dino", *randomized(first(**{**SIZES, "img_size": [SIDE]}, qkv_bias=True, norm_layer=norm)), others=others)
    second = partial(DinoVisionTransformer, **SIZES, init_values=1.0, block_chunks=0)
    golden("dinov2", *randomized(second(interpolate_offset=0.1)), others=others)
    registers = {"num_register_tokens": 2, "interpolate_antialias": True, "interpolate_offset": 0.0}
    golden("dinov2_reg", *randomized(second(**registers, ffn_layer="swiglufused")), others=others)
    tower = module("clip_model", Path(clip) / "clip" / "model.py").VisionTransformer
    golden("openai_clip", *randomized(tower(SIDE, PATCH, WIDTH, DEPTH, HEADS, 10), "visual."))


def module(name, path):
    """A Python file as a module, without the package that it is in."""
    spec = importlib.util.spec_from_file_location(name, path)
    found = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(found)
    return found


if __name__ == "__main__":
    kind, *folders = sys.argv[1:]
    {"timm": timm_goldens, "transformers": transformers_goldens, "authors": authors_goldens}[kind](*folders)
