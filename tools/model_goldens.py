"""Outputs of small models of other projects, computed by their own code: the files of tests/data/ that they are in.

Command: python tools/model_goldens.py PROJECT [FOLDER ...]
Each project is run in an environment of its own, with NumPy, safetensors, h5py and the packages that --help lists.
"authors" takes clones of facebookresearch/dino, facebookresearch/dinov2, openai/CLIP and facebookresearch/dinov3.
Weights are random, with seeds from their names (tests/goldens.py), so that the tests generate them again. The files of
KerasHub and tf-models-official are stored as these projects wrote them, because their layout is tested too. Models and
images are small: names, the order of operations, activations, epsilons and the resampling of positions are compared.
"""

import argparse
import importlib.util
import sys
import tempfile
import zlib
from functools import partial
from pathlib import Path

import numpy as np

sys.path.insert(0, str(Path(__file__).parents[1] / "tests"))

from goldens import DATA, random_weights, write_golden

SIDE, PATCH, WIDTH, MLP, HEADS, DEPTH, CLASSES = 32, 8, 24, 48, 3, 2, 5
IMAGES = np.random.default_rng(0).uniform(-1, 1, (2, SIDE, SIDE, 3)).astype("float32")
# Foundation models have other sizes: an odd grid, and other sides at which positions are resampled.
FOUNDATION_SIDE, FOUNDATION_PATCH = 28, 7
OTHER_SIDES = (FOUNDATION_SIDE + 3 * FOUNDATION_PATCH, FOUNDATION_SIDE - FOUNDATION_PATCH)


def channels_first(images):
    """A PyTorch tensor (B, 3, H, W) of images (B, H, W, 3)."""
    import torch

    return torch.from_numpy(images.transpose(0, 3, 1, 2).copy())


def randomized(model, prefix=""):
    """A PyTorch model with random weights, and the weights; `prefix` starts their names in published files."""
    import torch

    shapes = {f"{prefix}{name}": list(tensor.shape) for name, tensor in model.state_dict().items()}
    weights = random_weights(shapes)
    model.load_state_dict({name.removeprefix(prefix): torch.tensor(array) for name, array in weights.items()})
    return model, weights


def randomized_file(model):
    """As `randomized`, under the names that transformers saves, which are not those of its modules."""
    from safetensors import safe_open
    from safetensors.numpy import save_file

    with tempfile.TemporaryDirectory() as folder:
        model.save_pretrained(folder)
        file = f"{folder}/model.safetensors"
        with safe_open(file, "np") as saved:
            shapes = {name: saved.get_slice(name).get_shape() for name in saved.keys()}
        weights = random_weights(shapes)
        save_file(weights, file, metadata={"format": "pt"})
        return type(model).from_pretrained(folder), weights


def write_foundation(name, model, weights, call=lambda model, images: model(images), others=(), side=FOUNDATION_SIDE):
    """Writes the outputs of a PyTorch model with these weights.

    Args:
        name: Name of the golden.
        model: The model.
        weights: Arrays under the names of published files.
        call: Function of the model and images (B, 3, H, W).
        others: Sides of other images, for which the model resamples its positions.
        side: Side of the images.
    """
    import torch

    arrays = {}
    for pixels in (side, *others):
        images = np.random.default_rng(pixels).uniform(-1, 1, (2, pixels, pixels, 3)).astype("float32")
        with torch.no_grad():
            outputs = call(model.eval(), channels_first(images))
        suffix = "" if pixels == side else f"_{pixels}px"
        arrays |= {f"images{suffix}": images, f"outputs{suffix}": outputs.numpy()}
    write_golden(name, weights, **arrays)


def timm_goldens():
    """QK-norm, feature maps, patch dropout, and timm's foundation models."""
    import torch
    from timm.models.vision_transformer import VisionTransformer

    sizes = {"patch_size": PATCH, "num_classes": CLASSES, "embed_dim": WIDTH, "num_heads": HEADS}
    build = partial(VisionTransformer, **sizes, mlp_ratio=MLP / WIDTH)
    model, weights = randomized(build(img_size=SIDE, depth=DEPTH, qk_norm=True).eval())
    with torch.no_grad():
        write_golden("timm_qk_norm", weights, images=IMAGES, logits=model(channels_first(IMAGES)).numpy())
    timm_feature_maps(build)
    timm_patch_dropout(build)
    timm_foundation_models()


def timm_feature_maps(build):
    """Maps of `forward_intermediates`, plain and normalized, of a model with registers on a grid of 2 x 5 patches."""
    import torch

    height, width = 2 * PATCH, 5 * PATCH
    model, weights = randomized(build(img_size=(height, width), depth=3, reg_tokens=2).eval())
    images = np.random.default_rng(1).uniform(-1, 1, (2, height, width, 3)).astype("float32")
    arrays = {}
    with torch.no_grad():
        for name, norm in (("maps", False), ("normalized", True)):
            maps = model.forward_intermediates(channels_first(images), [0, 2], norm=norm, intermediates_only=True)
            arrays[name] = np.stack([array.numpy().transpose(0, 2, 3, 1) for array in maps])
    write_golden("timm_feature_maps", weights, images=images, **arrays)


def timm_patch_dropout(build):
    """Logits in training with `patch_drop_rate`, the noise that its patches are drawn by, and a gradient."""
    import torch

    model, weights = randomized(build(img_size=SIDE, depth=DEPTH, reg_tokens=2, patch_drop_rate=0.4).train())
    noise = torch.randn(len(IMAGES), (SIDE // PATCH) ** 2, generator=torch.Generator().manual_seed(0))
    original, torch.randn = torch.randn, lambda *shape, **options: noise.reshape(shape)
    logits = model(channels_first(IMAGES))
    torch.randn = original
    torch.sin(logits).sum().backward()
    outputs = {"logits": logits.detach().numpy(), "positions_gradient": model.pos_embed.grad.numpy()}
    write_golden("timm_patch_dropout", weights, images=IMAGES, noise=noise.numpy(), **outputs)


def timm_foundation_models():
    import torch
    from timm.layers import SwiGLUPacked
    from timm.models.vision_transformer import VisionTransformer

    sizes = {"patch_size": FOUNDATION_PATCH, "embed_dim": WIDTH, "depth": DEPTH, "num_heads": HEADS}
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
        write_foundation(name, *randomized(VisionTransformer(FOUNDATION_SIDE, **sizes, **options)))
    timm_rotary_models(sizes | {"img_size": FOUNDATION_SIDE, "dynamic_img_size": True})


def timm_rotary_models(sizes):
    """Models of timm's eva.py, with the options of its published definitions."""
    import torch
    from timm.models.eva import Eva

    rotary = {"use_rot_pos_emb": True, "use_abs_pos_emb": False}
    dinov3 = {"rope_type": "dinov3", "rope_temperature": 100, "rope_rotate_half": True, "init_values": 1e-5, **rotary}
    dinov3 |= {"num_reg_tokens": 4, "use_fc_norm": False, "norm_layer": partial(torch.nn.LayerNorm, eps=1e-5)}
    rope = {"attn_type": "rope", "init_values": 1e-5, "global_pool": "token", "use_rot_pos_emb": True}
    rope |= {"rope_grid_indexing": "xy", "rope_temperature": 100.0}
    reference = {"use_rot_pos_emb": True, "ref_feat_shape": (16, 16)}
    for name, options in {
        "timm_dinov3": {**dinov3, "qkv_bias": False, "global_pool": "token"},
        "timm_dinov3_plus": {**dinov3, "swiglu_mlp": True, "swiglu_align_to": 8, "global_pool": "token"},
        "timm_rope": {**rope, "use_abs_pos_emb": False},
        "timm_rope_ape": {**rope, "no_embed_class": True},
        "timm_rope_reg": {**reference, "use_abs_pos_emb": False, "class_token": False, "num_reg_tokens": 1},
        "timm_eva02": {**reference, "swiglu_mlp": True, "mlp_ratio": 4 * 2 / 3},
        "timm_eva": {},
    }.items():
        write_foundation(name, *randomized(Eva(**sizes, num_classes=CLASSES, **options)), others=OTHER_SIDES)


def flexivit_goldens():
    """FlexiViT: kernels resized by big_vision's function, and logits of its model at three sizes of patches."""
    import flax
    import jax
    from big_vision.models.proj.flexi import vit as flexi

    kernel = np.random.default_rng(2).standard_normal((8, 8, 3, 4)).astype("float32")
    # No size that is larger in one axis and smaller in the other: big_vision inverts a singular matrix there.
    sides = ((8, 8), (4, 4), (16, 16), (3, 6), (11, 11), (10, 16))
    resized = {f"kernel_{h}x{w}": np.asarray(flexi.resample_patchemb(kernel, (h, w))) for h, w in sides}
    sizes = {"width": WIDTH, "depth": DEPTH, "mlp_dim": MLP, "num_heads": HEADS, "pool_type": "tok"}
    grid = SIDE // PATCH
    model = flexi.Model(CLASSES, patch_size=(PATCH, PATCH), posemb_size=(grid, grid), seqhw=grid, **sizes)
    shapes = jax.eval_shape(model.init, jax.random.PRNGKey(0), IMAGES)["params"]
    flat = flax.traverse_util.flatten_dict(shapes, sep="/")
    weights = random_weights({name: list(array.shape) for name, array in flat.items()})
    params = {"params": flax.traverse_util.unflatten_dict(weights, sep="/")}
    larger = np.random.default_rng(3).uniform(-1, 1, (2, 2 * SIDE, 2 * SIDE, 3)).astype("float32")
    cases = {"logits": (IMAGES, grid), "logits_small_patches": (IMAGES, 2 * grid), "logits_large": (larger, grid)}
    logits = {name: model.apply(params, images, seqhw=side)[0] for name, (images, side) in cases.items()}
    write_golden("big_vision_flexivit", weights, images=IMAGES, larger=larger, kernel=kernel, **resized, **logits)


def vit_mae_golden():
    """The masked autoencoder of transformers: weights by the rule of tests/goldens.py, masks, predictions and losses.

    Its decoder has our positions, whose frequencies differ from MAE's.
    """
    import torch
    from transformers import ViTMAEConfig, ViTMAEForPreTraining

    width, grid = 16, SIDE // PATCH
    config = ViTMAEConfig(
        image_size=SIDE,
        patch_size=PATCH,
        hidden_size=WIDTH,
        num_hidden_layers=DEPTH,
        num_attention_heads=HEADS,
        intermediate_size=MLP,
        decoder_hidden_size=width,
        decoder_num_hidden_layers=DEPTH,
        decoder_num_attention_heads=2,
        decoder_intermediate_size=4 * width,
    )
    model = ViTMAEForPreTraining(config).eval()
    positions = "decoder.decoder_pos_embed"
    shapes = {name: list(tensor.shape) for name, tensor in model.state_dict().items() if name != positions}
    weights = random_weights(shapes)
    arrays = {**weights, positions: sine_cosine_positions(grid, width)}
    model.load_state_dict({name: torch.from_numpy(array) for name, array in arrays.items()})
    noise = np.random.default_rng(1).uniform(size=(len(IMAGES), grid * grid)).astype("float32")
    images, losses = channels_first(IMAGES), {}
    for name, normalized in (("loss", False), ("loss_of_normalized_targets", True)):
        model.config.norm_pix_loss = normalized
        with torch.no_grad():
            outputs = model(images, noise=torch.from_numpy(noise))
        losses[name] = outputs.loss.numpy()
    predictions, mask = outputs.logits.numpy(), outputs.mask.numpy()
    model.config.mask_ratio = 0.0  # the encoder alone, of all patches
    with torch.no_grad():
        outputs = model.vit(images).last_hidden_state[:, 0].numpy()
    arrays = {"noise": noise, "predictions": predictions, "mask": mask, "outputs": outputs, **losses}
    write_golden("hf_vit_mae", weights, images=IMAGES, **arrays)


def sine_cosine_positions(grid, width):
    """Those of keras_vit's `SinCosPositions`, after zeros for the class token: (1, 1 + grid * grid, width)."""
    frequencies = 10_000.0 ** -np.linspace(0, 1, width // 4)
    y, x = (axis.reshape(-1, 1) * frequencies for axis in np.mgrid[:grid, :grid])
    table = np.concatenate([np.sin(x), np.cos(x), np.sin(y), np.cos(y)], axis=1)
    return np.pad(table, ((1, 0), (0, 0)))[None].astype("float32")


def transformers_goldens():
    """MAE, DINOv2, DINOv3, CLIP and SigLIP."""
    import transformers as hf

    vit_mae_golden()
    sizes = {"image_size": FOUNDATION_SIDE, "patch_size": FOUNDATION_PATCH, "hidden_size": WIDTH}
    sizes |= {"num_hidden_layers": DEPTH, "num_attention_heads": HEADS}
    resized = {"interpolate_pos_encoding": True}

    def pooled(model, images):
        return model(images).pooler_output

    def logits(model, images):
        return model(images).logits

    def embedding(model, images):
        return model(images, **resized).image_embeds

    def resized_pooled(model, images):
        return model(images, **resized).pooler_output

    write_foundation("hf_dinov2", *randomized_file(hf.Dinov2Model(hf.Dinov2Config(**sizes))), pooled, OTHER_SIDES)
    model = hf.Dinov2WithRegistersModel(hf.Dinov2WithRegistersConfig(**sizes, num_register_tokens=2))
    write_foundation("hf_dinov2_reg", *randomized_file(model), pooled, OTHER_SIDES)
    model = hf.Dinov2ForImageClassification(hf.Dinov2Config(**sizes, use_swiglu_ffn=True, num_labels=5))
    write_foundation("hf_dinov2_g", *randomized_file(model), logits)
    sizes["intermediate_size"] = 3 * WIDTH
    for name, activation in (("hf_dinov3", "gelu"), ("hf_dinov3_plus", "silu")):
        options = {"num_register_tokens": 4, "use_gated_mlp": activation == "silu", "hidden_act": activation}
        config = hf.DINOv3ViTConfig(**sizes, **options)
        write_foundation(name, *randomized_file(hf.DINOv3ViTModel(config)), pooled, OTHER_SIDES)
    model = hf.CLIPVisionModelWithProjection(hf.CLIPVisionConfig(**sizes, projection_dim=10))
    write_foundation("hf_clip", *randomized_file(model), embedding, OTHER_SIDES)
    side = sizes["image_size"] = FOUNDATION_SIDE + 4  # the last 4 rows and columns are in no patch
    model = hf.SiglipVisionModel(hf.SiglipVisionConfig(**sizes))
    write_foundation("hf_siglip", *randomized_file(model), resized_pooled, OTHER_SIDES, side)


def authors_goldens(dino, dinov2, clip, dinov3):
    """The authors' DINO, DINOv2, CLIP and DINOv3, from clones of their repositories."""
    import torch

    dinov3_golden(dinov3)

    sys.path[:0] = [dino, dinov2]
    from dinov2.models.vision_transformer import DinoVisionTransformer

    sizes = {"patch_size": FOUNDATION_PATCH, "embed_dim": WIDTH, "depth": DEPTH, "num_heads": HEADS}
    build = module("vision_transformer", Path(dino) / "vision_transformer.py").VisionTransformer
    norm = partial(torch.nn.LayerNorm, eps=1e-6)
    model = build(img_size=[FOUNDATION_SIDE], **sizes, qkv_bias=True, norm_layer=norm)
    write_foundation("dino", *randomized(model), others=OTHER_SIDES)
    build = partial(DinoVisionTransformer, img_size=FOUNDATION_SIDE, **sizes, init_values=1.0, block_chunks=0)
    write_foundation("dinov2", *randomized(build(interpolate_offset=0.1)), others=OTHER_SIDES)
    registers = {"num_register_tokens": 2, "interpolate_antialias": True, "interpolate_offset": 0.0}
    write_foundation("dinov2_reg", *randomized(build(**registers, ffn_layer="swiglufused")), others=OTHER_SIDES)
    build = module("clip_model", Path(clip) / "clip" / "model.py").VisionTransformer
    tower = build(FOUNDATION_SIDE, FOUNDATION_PATCH, WIDTH, DEPTH, HEADS, 10)
    write_foundation("openai_clip", *randomized(tower, "visual."))


def dinov3_golden(folder):
    """The options of dinov3/hub/backbones.py, `dinov3_vits16plus`; the two buffers are as it sets them."""
    import torch

    sys.path.insert(0, folder)
    from dinov3.models.vision_transformer import DinoVisionTransformer

    model = DinoVisionTransformer(
        img_size=FOUNDATION_SIDE,
        patch_size=FOUNDATION_PATCH,
        embed_dim=WIDTH,
        depth=DEPTH,
        num_heads=HEADS,
        ffn_ratio=6,
        layerscale_init=1e-5,
        norm_layer="layernormbf16",
        ffn_layer="swiglu",
        n_storage_tokens=4,
        mask_k_bias=True,
        pos_embed_rope_dtype="fp32",
    )
    periods, mask = model.rope_embed.periods.clone(), torch.ones(3 * WIDTH)
    mask[WIDTH : 2 * WIDTH] = 0
    model, weights = randomized(model)
    model.rope_embed.periods = periods
    for block in model.blocks:
        block.attn.qkv.bias_mask = mask
    write_foundation("dinov3", model, weights, others=OTHER_SIDES)


def module(name, path):
    """A Python file as a module, without the package that it is in."""
    spec = importlib.util.spec_from_file_location(name, path)
    loaded = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(loaded)
    return loaded


def keras_hub_goldens():
    """Classifiers of KerasHub as presets, with images and logits: ViT with a hidden layer, and DeiT."""
    import keras
    from keras_hub.models import DeiTBackbone, DeiTImageClassifier, ViTBackbone, ViTImageClassifier

    sizes = {"image_shape": (SIDE, SIDE, 3), "patch_size": PATCH, "num_layers": DEPTH, "num_heads": HEADS}
    vit = ViTBackbone(**sizes, hidden_dim=WIDTH, mlp_dim=MLP)
    deit = DeiTBackbone(**sizes, hidden_dim=WIDTH, intermediate_dim=MLP)
    for name, model in (
        ("keras_hub_vit", ViTImageClassifier(vit, num_classes=CLASSES, intermediate_dim=7, pooling="token")),
        ("keras_hub_deit", DeiTImageClassifier(deit, num_classes=CLASSES)),
    ):
        fill(model.weights)
        model.save_to_preset(str(DATA / name))
        for file in (DATA / name).iterdir():
            if file.name not in ("config.json", "task.json", "model.weights.h5", "task.weights.h5"):
                file.unlink()
        np.savez(
            DATA / f"{name}_io.npz", images=IMAGES, logits=keras.ops.convert_to_numpy(model(IMAGES, training=False))
        )


def model_garden_goldens():
    """A classifier of tf-models-official as a TensorFlow checkpoint, with images and logits."""
    import tensorflow as tf
    import tf_keras
    from official.vision.modeling.backbones.vit import VisionTransformer
    from official.vision.modeling.classification_model import ClassificationModel

    specs = tf_keras.layers.InputSpec(shape=(None, SIDE, SIDE, 3))
    backbone = VisionTransformer(
        mlp_dim=MLP,
        num_heads=HEADS,
        num_layers=DEPTH,
        patch_size=PATCH,
        hidden_size=WIDTH,
        representation_size=7,
        input_specs=specs,
    )
    model = ClassificationModel(backbone, num_classes=CLASSES, input_specs=specs)
    fill(model.weights)
    (DATA / "model_garden_vit").mkdir(exist_ok=True)
    tf.train.Checkpoint(model=model, **model.checkpoint_items).write(str(DATA / "model_garden_vit" / "ckpt"))
    np.savez(DATA / "model_garden_vit_io.npz", images=IMAGES, logits=model(IMAGES, training=False).numpy())


def fill(weights):
    """Random numbers without constant zeros or ones, which would hide differences."""
    for index, weight in enumerate(weights):
        random = np.random.default_rng(zlib.crc32(str(index).encode()))
        shape = tuple(weight.shape)
        scale = 0.3 if len(shape) < 2 or shape[0] == 1 else shape[0] ** -0.5 if len(shape) == 2 else 0.1
        gamma = "gamma" in getattr(weight, "path", weight.name)
        weight.assign((gamma + scale * random.standard_normal(shape)).astype("float32"))


# What writes the goldens of a project, and the packages that it requires.
PROJECTS = {
    "timm": (timm_goldens, "torch timm"),
    "transformers": (transformers_goldens, "torch transformers"),
    "keras_hub": (keras_hub_goldens, "keras keras-hub tensorflow"),
    "model_garden": (model_garden_goldens, "tf-models-official"),
    "flexivit": (flexivit_goldens, "tensorflow flax einops ml_collections; a clone of big_vision in PYTHONPATH"),
    "authors": (authors_goldens, "torch; clones of dino, dinov2, CLIP and dinov3 as FOLDER"),
}


def main():
    packages = "\n".join(f"    {name}: pip install {requires}" for name, (_, requires) in PROJECTS.items())
    parser = argparse.ArgumentParser(
        description=f"{__doc__}\n{packages}", formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("project", choices=PROJECTS)
    parser.add_argument("folders", nargs="*", help='four clones, for "authors" alone')
    arguments = parser.parse_args()
    write, requires = PROJECTS[arguments.project]
    if len(arguments.folders) != (4 if arguments.project == "authors" else 0):
        parser.error(f"Expected four folders for authors, else none. Received: {arguments.folders}")
    try:
        write(*arguments.folders)
    except ImportError as error:
        parser.error(f"{error}. {arguments.project} requires: pip install {requires}")


if __name__ == "__main__":
    main()
