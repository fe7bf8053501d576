"""Ten steps of the authors' own code and of ours, from the same weights on the same batches."""

from dataclasses import replace

import keras
import numpy as np
import pytest
import ten_steps
import tensorflow as tf
from goldens import write_arrays
from ten_steps import CLASSES, DEPTH, HEADS, IMAGES, LABELS, MIXED, PATCH, SIDE, STEPS, WARMUP, WIDTH

import keras_vit
from keras_vit.named_weights import named_weights
from keras_vit.recipes import RECIPES
from keras_vit.recipes.pretraining.masked_autoencoder import masking_of, pixel_targets
from keras_vit.recipes.recipe import Architecture, Run
from keras_vit.recipes.runs import self_supervised
from keras_vit.recipes.runs.supervised import compile_classifier

pytestmark = pytest.mark.slow
IN_STEPS = {"warmup_steps": WARMUP}
IN_ONE_EPOCH = {"warmup_steps": 0, "decay": "constant"}  # the schedule of DeiT's code changes the rate between epochs
# Recipe, what its optimizer has here, and labels as the data pipeline makes them.
FAMILIES = {
    "augreg": ("augreg-i1k-ti16-light1", IN_STEPS, MIXED),
    "plain": ("plain-s16-90", IN_STEPS, MIXED),
    "vision_transformer": ("finetune-cifar10", IN_STEPS, LABELS),
    "deit": ("deit-s16", IN_ONE_EPOCH, MIXED),
    "deit_hard": ("deit-s16-hard", IN_ONE_EPOCH, MIXED),
    "deit3": ("deit3-s16", IN_ONE_EPOCH, MIXED),
    "bit": ("bit-flowers", {"warmup_steps": 2, "staircase": (0.4, 0.6, 0.8)}, LABELS),
}
# timm 0.3.2 decays the distillation token, and in MAE all tokens. We decay kernels only, as later versions of timm.
NOT_DECAYED = {"deit_hard": ["bias", "gamma", "beta", "table", "token$"], "mae": ["bias", "gamma", "beta"]}


def shortened(name, optimizer, **fields):
    """A recipe of ten steps on small images, without depth drop."""
    recipe = RECIPES[name]
    return replace(
        recipe,
        architecture=Architecture(f"Ti/{PATCH}"),
        data=replace(recipe.data, image_size=SIDE),
        optimizer=replace(recipe.optimizer, **optimizer),
        run=Run(),
        total_steps=STEPS,
        **fields,
    )


def train(model, inputs, labels):
    """Ten steps of `fit`."""
    model.fit(tf.data.Dataset.from_tensor_slices((inputs, labels)), shuffle=False, verbose=0)


def load(folder, arrays):
    """The model of weights under the authors' names; layer scale under timm's."""
    arrays = {name.replace("gamma_1", "ls1.gamma").replace("gamma_2", "ls2.gamma"): a for name, a in arrays.items()}
    suffix = "npz" if any("/" in name for name in arrays) else "safetensors"
    file = write_arrays(folder / f"weights.{suffix}", arrays)
    is_bit = any("root_block" in name for name in arrays)
    return keras_vit.load(file, **({} if is_bit else {"num_heads": HEADS, "image_size": SIDE}))


def assert_equal(found, expected, start, share=0.0):
    """All weights differ by less than 1e-5, and by less than 0.002 of the largest change in their array.

    A `share` of an array's weights may differ by ten times as much. In BiT one activation is so close to 0 that
    rounding decides whether ReLU's gradient is 0 or 1: images changed by one ulp change the same weights.

    Biases of keys are left out: they change no attention. Without rounding their gradients would be 0, and Adam moves
    every weight by up to its rate.
    """
    assert found.keys() == expected.keys()
    for name, variable in expected.items():
        theirs, ours = np.array(variable), np.array(found[name])
        known = theirs != ten_steps.UNKNOWN
        if name.endswith("qkv/bias"):
            known &= np.repeat([True, False, True], len(theirs) // 3)
        difference = np.abs(ours - theirs)[known]
        moved = np.abs(theirs - start[name])[known].max()
        bound = min(1e-5, 0.002 * moved + 2e-7)
        assert np.mean(difference >= bound) <= share, (name, difference.max(), moved)
        assert difference.max() < 10 * bound, (name, difference.max(), moved)


@pytest.mark.parametrize(
    "family",
    [pytest.param(family, marks=[pytest.mark.extended] * (family in ("plain", "deit", "bit"))) for family in FAMILIES],
)
def test_classifiers(family, tmp_path, without_xla):
    name, optimizer, labels = FAMILIES[family]
    start, final = ten_steps.start_and_final_weights(family)
    keep_head = family not in ("vision_transformer", "bit")  # fine-tuning begins with a head of zeros
    recipe = shortened(name, optimizer, weights=None, total_epochs=None, keep_head=keep_head)
    if family == "deit_hard":
        layers = [keras.Input((SIDE, SIDE, 3)), keras.layers.Flatten(), keras.layers.Dense(CLASSES, use_bias=False)]
        teacher = keras.Sequential(layers)
        teacher.set_weights([ten_steps.TEACHER])
        teacher.save(tmp_path / "teacher.keras")
        recipe = replace(recipe, teacher=str(tmp_path / "teacher.keras"))
    model, classifier = compile_classifier(recipe, CLASSES, STEPS, load(tmp_path, start))
    if family in NOT_DECAYED:
        model.optimizer.exclude_from_weight_decay(var_names=NOT_DECAYED[family])
    before = {name: np.array(variable) for name, variable in named_weights(classifier).items()}
    train(model, IMAGES, labels)
    share = 0.05 if family == "bit" else 0.0
    assert_equal(named_weights(classifier), named_weights(load(tmp_path, final)), before, share)


def autoencoder_weights(folder, arrays):
    """MAE's weights under our names; the blocks of its decoder are read as those of an encoder."""
    encoder = {name: array for name, array in arrays.items() if "decoder" not in name and name != "mask_token"}
    blocks = {name.removeprefix("decoder_"): array for name, array in arrays.items() if "decoder_blocks" in name}
    blocks |= {f"norm.{leaf}": arrays[f"decoder_norm.{leaf}"] for leaf in ("weight", "bias")}
    rest = {name: array for name, array in encoder.items() if not name.startswith(("blocks", "norm"))}
    named = {f"vit/{name}": value for name, value in named_weights(load(folder, encoder)).items()}
    named |= {
        name.replace("encoder", "decoder", 1): value
        for name, value in named_weights(load(folder, rest | blocks)).items()
        if name.startswith("encoder")
    }
    for ours, theirs in (("decoder_embedding", "decoder_embed"), ("head", "decoder_pred")):
        named |= {f"{ours}/kernel": arrays[f"{theirs}.weight"].T, f"{ours}/bias": arrays[f"{theirs}.bias"]}
    return {**named, "mask": arrays["mask_token"]}


def test_masked_autoencoder(tmp_path, without_xla, monkeypatch):
    decoder = {"decoder_depth": 1, "decoder_width": WIDTH, "decoder_heads": HEADS}
    recipe = shortened("mae-b16", IN_STEPS, **decoder)
    # The authors have a class token and the exact GELU, the recipe neither.
    sizes = {"image_size": SIDE, "patch_size": PATCH, "depth": DEPTH, "width": WIDTH, "mlp_dim": 4 * WIDTH}
    vit = keras_vit.VisionTransformer(
        **sizes, num_heads=HEADS, num_classes=0, gelu="erf", position_embedding="sincos_2d", name="vit"
    )
    monkeypatch.setattr(self_supervised, "build_model", lambda *args: vit)
    model = self_supervised.compile_self_supervised(recipe)
    model.optimizer.exclude_from_weight_decay(var_names=NOT_DECAYED["mae"])
    start, final = (autoencoder_weights(tmp_path, arrays) for arrays in ten_steps.start_and_final_weights("mae"))
    names = named_weights(model)
    for name, variable in names.items():
        variable.assign(start[name])
    maskings = [masking_of(noise, recipe.masked_fraction)._asdict() for noise in ten_steps.NOISE]
    inputs = {"images": IMAGES, **{field: np.stack([masking[field] for masking in maskings]) for field in maskings[0]}}
    targets = np.stack([pixel_targets(images, vit.patch_size, recipe.normalize_targets) for images in IMAGES])
    targets = np.take_along_axis(targets, inputs["masked"][..., None], axis=2)  # (10, B, M, P * P * 3)
    train(model, inputs, targets)
    assert_equal(names, {name: final[name] for name in names}, start)
