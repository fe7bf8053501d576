"""Weights after ten training steps of the authors' own code: the files of tests/data/ten_steps/.

Command: python tools/ten_steps_goldens.py FAMILY FOLDER
FOLDER is a clone of the repository that --help names. Start weights and batches are random, by their seeds
(tests/goldens.py, tests/ten_steps.py). Rates are those of the published configurations, with shorter schedules. Moments
are in float32, as ours; the configurations of big_vision and vision_transformer keep the first in bfloat16.
"""

import argparse
import collections.abc
import copy
import math
import sys
import tempfile
import types
from functools import partial
from pathlib import Path
from unittest.mock import MagicMock

import numpy as np

sys.path.insert(0, str(Path(__file__).parents[1] / "tests"))

import ten_steps
from goldens import random_weights
from ten_steps import BATCH, CLASSES, DEPTH, HEADS, IMAGES, LABELS, PATCH, SIDE, STEPS, WARMUP, WIDTH


def flat(tree) -> dict:
    """The arrays of nested dictionaries, by path."""
    import flax

    return {"/".join(path): np.asarray(leaf) for path, leaf in flax.traverse_util.flatten_dict(tree).items()}


def save_start(folder, arrays):
    np.savez(f"{folder}/start.npz", **arrays)


def big_vision(config_file, **model):
    """train.main: its configuration with a small model, our batches and no evaluation; the checkpoint it writes."""
    import jax
    import tensorflow as tf
    from absl import flags
    from big_vision import train
    from big_vision.models import vit

    sizes = {"width": WIDTH, "depth": DEPTH, "mlp_dim": 4 * WIDTH, "num_heads": HEADS, "patch_size": (PATCH, PATCH)}
    with jax.transfer_guard("allow"):
        model = {**sizes, **model}
        shapes = flat(vit.Model(CLASSES, **model).init(jax.random.PRNGKey(0), IMAGES[0])["params"])
    start = random_weights({name: array.shape for name, array in shapes.items()})
    spec = {
        "image": tf.TensorSpec((BATCH, SIDE, SIDE, 3), tf.float32),
        "labels": tf.TensorSpec((BATCH, CLASSES), tf.float32),
    }
    batches = [jax.device_put({"image": images, "labels": labels}) for images, labels in zip(IMAGES, ten_steps.MIXED)]
    train.input_pipeline.training = lambda config: (types.SimpleNamespace(element_spec=spec), STEPS * BATCH)
    train.input_pipeline.start_global = lambda *args: batches
    final = {}
    train.u.sync = lambda: None  # of several hosts; it calls what JAX removed
    train.u.save_checkpoint_ts = lambda manager, checkpoint, *args: final.update(flat(checkpoint["params"]))
    with tempfile.TemporaryDirectory() as folder:
        flags.FLAGS(["train", f"--config={Path(train.__file__).parent}/configs/{config_file}", f"--workdir={folder}"])
        config = flags.FLAGS.config
        with config.unlocked():
            del config.total_epochs, config.evals
            config.update({"total_steps": STEPS, "ckpt_steps": STEPS, "num_classes": CLASSES, "pp_modules": []})
            config.input.batch_size = BATCH
            config.mixup.p = 0.0
            config.optax = {}
            config.schedule.warmup_steps = WARMUP
            config.model, config.model_init = model, f"{folder}/start.npz"
        if "init_head_bias" in config:  # main sets it before it loads the start
            start["head/bias"][:] = config.init_head_bias
        save_start(folder, start)
        train.main(None)
    return final


def vision_transformer():
    """train.train_and_evaluate on CIFAR-10's configuration; it resets the head."""
    import jax
    import optax
    import tensorflow as tf

    sys.modules["vit_jax.models_lit"] = MagicMock()  # of texts, with more requirements
    from vit_jax import train
    from vit_jax.configs import vit

    config = vit.get_config("b16,cifar10")
    with config.unlocked():
        config.model.update({"model_name": "start", "hidden_size": WIDTH, "patches": {"size": (PATCH, PATCH)}})
        config.model.transformer.update({"mlp_dim": 4 * WIDTH, "num_heads": HEADS, "num_layers": DEPTH})
        config.update({"total_steps": STEPS, "warmup_steps": WARMUP, "accum_steps": 1, "batch_eval": BATCH})
    model = train.models.VisionTransformer(num_classes=CLASSES, **config.model)
    shapes = flat(model.init(jax.random.PRNGKey(0), IMAGES[0], train=False)["params"])
    start = random_weights({name: array.shape for name, array in shapes.items()})
    batches = [{"image": images[None], "label": labels[None]} for images, labels in zip(IMAGES, ten_steps.ONE_HOT)]
    train.input_pipeline.get_dataset_info = lambda *args: {"num_classes": CLASSES}
    train.input_pipeline.get_datasets = lambda config: (batches, tf.data.Dataset.from_tensors(batches[0]))
    train.input_pipeline.prefetch = lambda dataset, size: (
        dataset if isinstance(dataset, list) else dataset.as_numpy_iterator()
    )
    sgd = optax.sgd
    optax.sgd = lambda accumulator_dtype, **arguments: sgd(**arguments)
    with tempfile.TemporaryDirectory() as folder:
        save_start(folder, start)
        with config.unlocked():
            config.pretrained_dir = folder
        return flat(train.train_and_evaluate(config, folder))


def with_torch():
    """PyTorch, for code that expects a GPU and names of older versions."""
    import torch

    sys.modules["torch._six"] = types.SimpleNamespace(container_abcs=collections.abc, inf=math.inf)
    from timm.data import transforms

    if not hasattr(transforms, "_pil_interp"):
        transforms._pil_interp = transforms.str_to_pil_interp
    torch.cuda.synchronize = lambda: None
    np.float = float
    return torch


def torch_batches(labels) -> list:
    """Batches of PyTorch tensors; images (B, 3, H, W)."""
    import torch

    images = np.ascontiguousarray(IMAGES.transpose(0, 1, 4, 2, 3))
    return [(torch.from_numpy(x), torch.from_numpy(y)) for x, y in zip(images, labels)]


def set_start(model, **changes):
    """Gives a PyTorch model random weights, but for `changes`."""
    import torch

    start = random_weights({name: list(tensor.shape) for name, tensor in model.state_dict().items()}) | changes
    model.load_state_dict({name: torch.from_numpy(array) for name, array in start.items()})


def arrays_of(model) -> dict:
    return {name: tensor.numpy() for name, tensor in model.state_dict().items()}


def deit(module, model, *options):
    """engine.train_one_epoch, with what main.py builds from these options: ten steps of an epoch, of one rate."""
    torch = with_torch()
    import main
    from timm.data.mixup import mixup_target

    args = main.get_args_parser().parse_args(options)
    norm = partial(torch.nn.LayerNorm, eps=1e-6)
    sizes = {"img_size": SIDE, "patch_size": PATCH, "embed_dim": WIDTH, "depth": DEPTH, "num_heads": HEADS}
    if args.bce_loss:
        sizes["block_layers"] = main.models_v2.Layer_scale_init_Block
    model = getattr(getattr(main, module), model)(num_classes=CLASSES, qkv_bias=True, norm_layer=norm, **sizes)
    set_start(model)
    kernel = ten_steps.TEACHER.reshape(SIDE, SIDE, 3, CLASSES).transpose(3, 2, 0, 1)
    linear = torch.nn.Linear(SIDE * SIDE * 3, CLASSES, bias=False)
    linear.weight.data = torch.from_numpy(kernel.reshape(CLASSES, -1))
    teacher = torch.nn.Sequential(torch.nn.Flatten(), linear)
    criterion = main.DistillationLoss(
        torch.nn.BCEWithLogitsLoss() if args.bce_loss else main.SoftTargetCrossEntropy(),
        *(teacher, args.distillation_type, args.distillation_alpha, args.distillation_tau),
    )

    def mix_labels(images, labels):
        return images, mixup_target(labels, CLASSES, ten_steps.RATIO, args.smoothing, "cpu")

    main.train_one_epoch(
        model,
        criterion,
        torch_batches(ten_steps.MIXED if args.bce_loss else LABELS),
        main.create_optimizer(args, model),
        *(torch.device("cpu"), 0, main.NativeScaler(), args.clip_grad),
        mixup_fn=None if args.bce_loss else mix_labels,
        args=args,
    )
    return arrays_of(model)


def mae():
    """engine_pretrain.train_one_epoch, with the optimizer of main_pretrain.py; positions and masks are ours."""
    torch = with_torch()
    import main_pretrain
    import models_mae

    rate = 1.5e-4 * 4096 / 256  # for the batch size of the recipe
    args = main_pretrain.get_args_parser().parse_args(["--lr", str(rate), "--epochs", "1", "--norm_pix_loss"])
    args.warmup_epochs = WARMUP / STEPS
    sizes = {"img_size": SIDE, "patch_size": PATCH, "embed_dim": WIDTH, "depth": DEPTH, "num_heads": HEADS}
    decoder = {"decoder_embed_dim": WIDTH, "decoder_depth": 1, "decoder_num_heads": HEADS}
    model = models_mae.MaskedAutoencoderViT(
        norm_layer=partial(torch.nn.LayerNorm, eps=1e-6), norm_pix_loss=args.norm_pix_loss, **sizes, **decoder
    )
    set_start(model, pos_embed=positions(), decoder_pos_embed=positions())
    noise = iter(torch.from_numpy(ten_steps.NOISE))
    torch.rand = lambda *shape, device: next(noise)
    groups = main_pretrain.optim_factory.add_weight_decay(model, args.weight_decay)
    optimizer = torch.optim.AdamW(groups, lr=args.lr, betas=(0.9, 0.95))
    main_pretrain.train_one_epoch(
        model, torch_batches(LABELS), optimizer, torch.device("cpu"), 0, main_pretrain.NativeScaler(), args=args
    )
    return arrays_of(model)


def positions() -> np.ndarray:
    """The fixed positions of big_vision, which our recipe has, and zeros for the class token: (1, 1 + N, D)."""
    y, x = np.mgrid[: SIDE // PATCH, : SIDE // PATCH].reshape(2, -1, 1)
    omega = 10_000.0 ** -(np.arange(WIDTH // 4) / (WIDTH // 4 - 1))
    patches = np.concatenate([np.sin(x * omega), np.cos(x * omega), np.sin(y * omega), np.cos(y * omega)], axis=1)
    return np.concatenate([np.zeros((1, WIDTH)), patches]).astype("float32")[None]


def bit():
    """bit_pytorch.train.main with the schedule of small datasets, a fiftieth as long; it resets the head."""
    import bit_common
    from bit_pytorch import models, train

    build = partial(models.ResNetV2, [1, 1, 1, 1], 1)
    shapes = {name: array.shape for name, array in bit_arrays(build(CLASSES)).items()}
    final, test_images = {}, types.SimpleNamespace(classes=range(CLASSES))
    train.mktrainval = lambda *args: ([0] * BATCH, test_images, torch_batches(LABELS), [])
    train.run_eval = lambda model, *args, **more: final.update(bit_arrays(model.module))
    train.bit_hyperrule.get_schedule = lambda size: [2, 4, 6, 8, 10]
    with tempfile.TemporaryDirectory() as folder:
        save_start(folder, random_weights(shapes))
        models.KNOWN_MODELS[f"{folder}/start"] = build
        options = ["--name", "run", "--model", f"{folder}/start", "--logdir", folder]
        args = bit_common.argparser(models.KNOWN_MODELS).parse_args(options)
        args.save = False
        train.main(args)
    return final


def bit_arrays(model) -> dict:
    """The weights of a ResNetV2, under the names and in the layout of the files that its `load_from` reads."""

    class Numbers(list):
        """A file whose arrays are the numbers of their names."""

        def __getitem__(self, name):
            self.append(name)
            return np.array(len(self) - 1, "float32")

    names, numbered = Numbers(), copy.deepcopy(model)
    numbered.zero_head = False
    numbered.load_from(names)
    numbers = [int(parameter.flatten()[0]) for parameter in numbered.parameters()]
    arrays = [parameter.detach().numpy().copy() for parameter in model.parameters()]
    return {
        list.__getitem__(names, number): array.transpose(2, 3, 1, 0) if array.ndim == 4 else array
        for number, array in zip(numbers, arrays)
    }


JAX, TIMM = "jax flax optax clu tensorflow ml_collections", "torch torchvision timm==0.3.2"
DEIT, DEIT_RATE = "facebookresearch/deit@7e160fe", ("--lr", "1e-3")  # for the batch size of the recipe
LAYER_SCALE = ("--lr", "4e-3", "--opt", "lamb", "--smoothing", "0.0", "--bce-loss")
BIG_VISION = "google-research/big_vision@0127fb6"
# What trains a family, the repository with the commit that wrote the files, and the packages that it requires.
FAMILIES = {
    "augreg": (
        lambda: big_vision("vit_i1k.py:variant=Ti/16", rep_size=True, pool_type="tok"),
        *(BIG_VISION, JAX),
    ),
    "plain": (
        lambda: big_vision("vit_s16_i1k.py", rep_size=True, pool_type="gap", posemb="sincos2d"),
        *(BIG_VISION, JAX),
    ),
    "vision_transformer": (vision_transformer, "google-research/vision_transformer@c6de1e5", f"{JAX} pandas"),
    "deit": (lambda: deit("models", "VisionTransformer", *DEIT_RATE), DEIT, TIMM),
    "deit_hard": (
        lambda: deit("models", "DistilledVisionTransformer", *DEIT_RATE, "--distillation-type", "hard"),
        *(DEIT, TIMM),
    ),
    "deit3": (lambda: deit("models_v2", "vit_models", *LAYER_SCALE), DEIT, "torch torchvision timm==1.0.31"),
    "mae": (mae, "facebookresearch/mae@efb2a80", TIMM),
    "bit": (bit, "google-research/big_transfer@140de6e", "torch torchvision"),
}


def main():
    lines = (f"    {name}: {source}; pip install {packages}" for name, (_, source, packages) in FAMILIES.items())
    parser = argparse.ArgumentParser(
        description="\n".join([__doc__, *lines]), formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("family", choices=FAMILIES)
    parser.add_argument("folder", help="a clone of the repository")
    arguments = parser.parse_args()
    sys.path.insert(0, arguments.folder)
    ten_steps.write_final_weights(arguments.family, FAMILIES[arguments.family][0]())


if __name__ == "__main__":
    main()
