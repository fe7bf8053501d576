"""Outputs of small models of other projects, computed by their own code: some of the files in tests/data/.

Each project in an environment of its own, with NumPy, safetensors and h5py:
    python benchmarks/goldens.py timm            # pip install torch timm
    python benchmarks/goldens.py hf_vit_mae      # pip install torch transformers
    python benchmarks/goldens.py keras_hub       # pip install keras keras-hub and a backend
    python benchmarks/goldens.py model_garden    # pip install tf-models-official
    python benchmarks/goldens.py flexivit        # pip install tensorflow flax einops ml_collections; big_vision
Weights are random, with seeds from their names (tests/goldens.py). Those of timm and transformers are generated again
by the tests. The files of KerasHub and tf-models-official are stored as these projects wrote them, because their layout
is tested too.
"""

import json
import sys
import zlib
from pathlib import Path

import numpy as np

sys.path.insert(0, str(Path(__file__).parents[1] / "tests"))

from goldens import DATA, random_weights, write_golden

SIDE, PATCH, WIDTH, MLP, HEADS, DEPTH, CLASSES = 32, 8, 24, 48, 3, 2, 5
IMAGES = np.random.default_rng(0).uniform(-1, 1, (2, SIDE, SIDE, 3)).astype("float32")


def timm_goldens():
    """A Vision Transformer with QK-norm: weights by the rule of tests/goldens.py, images and logits."""
    import torch
    from timm.models.vision_transformer import VisionTransformer

    model = VisionTransformer(
        img_size=SIDE,
        patch_size=PATCH,
        num_classes=CLASSES,
        embed_dim=WIDTH,
        depth=DEPTH,
        num_heads=HEADS,
        mlp_ratio=MLP / WIDTH,
        qk_norm=True,
    ).eval()
    weights = random_weights({name: list(tensor.shape) for name, tensor in model.state_dict().items()})
    model.load_state_dict({name: torch.from_numpy(array) for name, array in weights.items()})
    with torch.no_grad():
        logits = model(torch.from_numpy(IMAGES.transpose(0, 3, 1, 2).copy())).numpy()
    write_golden("timm_qk_norm", weights, images=IMAGES, logits=logits)
    timm_feature_maps()
    timm_patch_dropout()


def timm_feature_maps():
    """Maps of `forward_intermediates`, plain and normalized, of a model with registers on a grid of 2 x 5 patches."""
    import torch
    from timm.models.vision_transformer import VisionTransformer

    height, width = 2 * PATCH, 5 * PATCH
    sizes = {"img_size": (height, width), "patch_size": PATCH, "embed_dim": WIDTH, "mlp_ratio": MLP / WIDTH}
    model = VisionTransformer(**sizes, num_classes=CLASSES, depth=3, num_heads=HEADS, reg_tokens=2).eval()
    weights = random_weights({name: list(tensor.shape) for name, tensor in model.state_dict().items()})
    model.load_state_dict({name: torch.from_numpy(array) for name, array in weights.items()})
    images = np.random.default_rng(1).uniform(-1, 1, (2, height, width, 3)).astype("float32")
    maps = {}
    with torch.no_grad():
        for name, norm in (("maps", False), ("normalized", True)):
            found = model.forward_intermediates(
                torch.from_numpy(images.transpose(0, 3, 1, 2).copy()), [0, 2], norm=norm, intermediates_only=True
            )
            maps[name] = np.stack([one.numpy().transpose(0, 2, 3, 1) for one in found])
    write_golden("timm_feature_maps", weights, images=images, **maps)


def timm_patch_dropout():
    """Logits in training with `patch_drop_rate`, the noise that its patches are drawn by, and a gradient."""
    import torch
    from timm.models.vision_transformer import VisionTransformer

    sizes = {"img_size": SIDE, "patch_size": PATCH, "embed_dim": WIDTH, "mlp_ratio": MLP / WIDTH}
    options = {"reg_tokens": 2, "patch_drop_rate": 0.4}
    model = VisionTransformer(**sizes, **options, num_classes=CLASSES, depth=DEPTH, num_heads=HEADS).train()
    weights = random_weights({name: list(tensor.shape) for name, tensor in model.state_dict().items()})
    model.load_state_dict({name: torch.from_numpy(array) for name, array in weights.items()})
    noise = torch.randn(len(IMAGES), (SIDE // PATCH) ** 2, generator=torch.Generator().manual_seed(0))
    original, torch.randn = torch.randn, lambda *shape, **options: noise.reshape(shape)
    logits = model(torch.from_numpy(IMAGES.transpose(0, 3, 1, 2).copy()))
    torch.randn = original
    torch.sin(logits).sum().backward()
    outputs = {"logits": logits.detach().numpy(), "positions_gradient": model.pos_embed.grad.numpy()}
    write_golden("timm_patch_dropout", weights, images=IMAGES, noise=noise.numpy(), **outputs)


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


def vit_mae_goldens():
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
    images, losses = torch.from_numpy(IMAGES.transpose(0, 3, 1, 2).copy()), {}
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


if __name__ == "__main__":
    {
        "timm": timm_goldens,
        "hf_vit_mae": vit_mae_goldens,
        "keras_hub": keras_hub_goldens,
        "model_garden": model_garden_goldens,
        "flexivit": flexivit_goldens,
    }[sys.argv[1]]()
    print(json.dumps(sorted(str(file.relative_to(DATA)) for file in DATA.rglob("*") if sys.argv[1] in str(file))))
