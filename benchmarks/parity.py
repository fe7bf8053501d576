"""Logits of full-size models compared with other libraries' code, with the same random weights.

Requires vit-for-keras[all] and: pip install torch transformers timm keras-hub tf-models-official
Command: python benchmarks/parity.py [--libraries timm transformers]
Each library saves its weights in its own format, and `keras_vit.load` reads them; formats that keras_vit writes are
read back by the library. The difference is the largest over 4 images, divided by the standard deviation of the
library's logits.
"""

import argparse
import gc
import importlib.util
import tempfile
import time
from pathlib import Path

import numpy as np

if importlib.util.find_spec("timm"):
    import timm  # before TensorFlow: in the other order two copies of LLVM collide

import tensorflow as tf  # isort: skip

import keras_vit
from keras_vit.weights import save

CLASSES = 1000


def images(size=224):
    random = np.random.default_rng(0)
    blocks = random.uniform(-1, 1, (4, 14, 14, 3)).repeat(size // 14, 1).repeat(size // 14, 2)
    return np.clip(0.8 * blocks + 0.3 * random.standard_normal(blocks.shape), -1, 1).astype("float32")


def random_weight(random, name, shape, fan_in):
    """No constant zeros or ones: a zero head would hide every difference."""
    if fan_in:
        return (1.2 * fan_in**-0.5 * random.standard_normal(shape)).astype("float32")
    is_scale = name.endswith(("gamma", "gamma:0")) or ("norm" in name and name.endswith("weight"))
    spread = 0.3 if any(word in name for word in ("pos", "token", "cls/")) else 0.1
    return (is_scale + spread * random.standard_normal(shape)).astype("float32")


def fill_torch(model):
    import torch

    random = np.random.default_rng(1)
    with torch.no_grad():
        for name, weight in sorted(model.named_parameters()):
            is_kernel = weight.ndim in (2, 4) and "pos" not in name
            fan_in = int(np.prod(weight.shape[1:])) if is_kernel else 0
            weight.copy_(torch.from_numpy(random_weight(random, name, tuple(weight.shape), fan_in)))
    return model.eval()


def fill_keras(weights):
    random = np.random.default_rng(1)
    for weight in weights:
        name, shape = getattr(weight, "path", weight.name), tuple(weight.shape)
        per_head = len(shape) == 3 and "attention_output" not in name
        fan_in = (shape[0] if per_head else int(np.prod(shape[:-1]))) if "kernel" in name.rpartition("/")[2] else 0
        weight.assign(random_weight(random, name, shape, fan_in))


def torch_logits(model):
    import torch

    with torch.no_grad():
        output = model(torch.from_numpy(images().transpose(0, 3, 1, 2).copy()))
    return getattr(output, "logits", output).numpy()


def transformers_models(folder):
    from transformers import DeiTConfig, DeiTForImageClassificationWithTeacher, ViTConfig, ViTForImageClassification

    small = {"hidden_size": 384, "num_attention_heads": 6, "intermediate_size": 1536}
    for name, kind, config in (
        ("transformers ViT-B/16", ViTForImageClassification, ViTConfig(num_labels=CLASSES)),
        ("transformers DeiT-S/16", DeiTForImageClassificationWithTeacher, DeiTConfig(num_labels=CLASSES, **small)),
    ):
        model = fill_torch(kind(config))
        model.save_pretrained(folder / "in")
        logits = torch_logits(model)
        ours = keras_vit.load(folder / "in")
        yield name, logits, ours
        save(ours, folder / "out", overwrite=True)
        yield f"{name}, written by keras_vit", torch_logits(kind.from_pretrained(folder / "out").eval()), ours


def timm_models(folder):
    from timm.models._hub import save_for_hf

    for name in ("vit_small_patch16_224", "vit_small_r26_s32_224", "deit_small_distilled_patch16_224"):
        model = fill_torch(timm.create_model(name))
        save_for_hf(model, folder / name, safe_serialization=True)
        yield f"timm {name}", torch_logits(model), keras_vit.load(folder / name)
    # timm also reads .npz; their weights are for tanh GELU.
    ours = keras_vit.ViT_S16(num_classes=CLASSES)
    fill_keras(ours.weights)
    save(ours, folder / "ours.npz")
    model = timm.create_model("vit_small_patch16_224", act_layer="gelu_tanh").eval()
    model.load_pretrained(str(folder / "ours.npz"))
    yield "timm vit_small_patch16_224, .npz written by keras_vit", torch_logits(model), ours


def keras_hub_models(folder):
    from keras_hub.models import ViTBackbone, ViTImageClassifier

    backbone = ViTBackbone((224, 224, 3), 16, num_layers=12, num_heads=12, hidden_dim=768, mlp_dim=3072)
    model = ViTImageClassifier(backbone, num_classes=CLASSES)
    fill_keras(model.weights)
    model.save_to_preset(str(folder / "preset"))
    logits = model.predict(images(), verbose=0)
    yield "KerasHub ViT-B/16, preset", logits, keras_vit.load(folder / "preset")
    yield "KerasHub ViT-B/16, object", logits, keras_vit.load(model)


def model_garden_models(folder):
    import tf_keras
    from official.vision.modeling.backbones.vit import VisionTransformer
    from official.vision.modeling.classification_model import ClassificationModel

    specs = tf_keras.layers.InputSpec(shape=(None, 224, 224, 3))
    backbone = VisionTransformer(input_specs=specs)
    model = ClassificationModel(backbone, num_classes=CLASSES, input_specs=specs)
    fill_keras(model.weights)
    path = tf.train.Checkpoint(model=model, **model.checkpoint_items).save(str(folder / "garden"))
    logits = model(images(), training=False).numpy()
    yield "tf-models-official vit-b16, checkpoint", logits, keras_vit.load(path)


# The models of a library, and the modules that it requires.
LIBRARIES = {
    "transformers": (transformers_models, ("torch", "transformers")),
    "timm": (timm_models, ("torch", "timm")),
    "keras-hub": (keras_hub_models, ("keras_hub",)),
    "tf-models-official": (model_garden_models, ("official", "tf_keras")),
}


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--libraries", nargs="+", choices=LIBRARIES, default=[*LIBRARIES])
    libraries = parser.parse_args().libraries
    for name in libraries:
        missing = [module for module in LIBRARIES[name][1] if importlib.util.find_spec(module) is None]
        if missing:
            parser.error(f"{name} is not installed: {', '.join(missing)}. Install it or omit it from --libraries.")
    print("| library | largest difference / std | time, s |\n|---|---|---|")
    for library in libraries:
        start = time.perf_counter()
        with tempfile.TemporaryDirectory() as folder:
            for name, expected, model in LIBRARIES[library][0](Path(folder)):
                ours = model.predict(images(), verbose=0)
                difference = np.abs(ours - expected).max() / expected.std()
                print(f"| {name} | {difference:.1e} | {time.perf_counter() - start:.0f} |", flush=True)
                start = time.perf_counter()
        gc.collect()


if __name__ == "__main__":
    main()
