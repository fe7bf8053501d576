"""Mean and standard deviation of pixels: stated, published, given, or assumed and said so."""

import json

import numpy as np
import pytest
from goldens import golden_file, golden_weights, write_arrays

import keras_vit
from keras_vit.pixel_range import IMAGENET, PixelRangeWarning
from keras_vit.weights import open_checkpoint

MEAN = IMAGENET["mean"]


def scaling(file):
    found = open_checkpoint(file).preprocessing
    return found["origin"], found.get("mean", (0.5, 0.5, 0.5))


def named(folder, name, golden):
    folder.mkdir(exist_ok=True)
    return golden_file(folder, golden).rename(folder / name)


@pytest.mark.parametrize(
    "name,golden,mean",
    [
        ("deit_tiny_patch16_224.safetensors", "timm_token", MEAN),
        ("deit3_small_patch16_224.fb_in1k.safetensors", "timm_token", MEAN),
        ("vit_base_patch16_224.dino.safetensors", "timm_token", MEAN),
        ("vit_base_patch16_224.mae.safetensors", "timm_token", MEAN),
        ("vit_base_patch16_224.augreg_in21k.safetensors", "timm_token", (0.5,) * 3),
        ("maestro.safetensors", "timm_token", (0.5,) * 3),
        ("x.safetensors", "hf_deit", MEAN),
        ("x.safetensors", "hf_vit", (0.5,) * 3),
        ("x.safetensors", "timm_layerscale_reg", MEAN),
        ("deit.npz", "vit_jax_token", (0.5,) * 3),
    ],
)
def test_assumed_by_name_or_shape(tmp_path, name, golden, mean):
    assert scaling(named(tmp_path, name, golden)) == ("assumed", mean)


def test_assumed_by_the_name_of_the_folder(tmp_path):
    assert scaling(named(tmp_path / "dinov2-small", "model.safetensors", "timm_token")) == ("assumed", MEAN)
    assert scaling(named(tmp_path / "deit", "other.safetensors", "timm_token")) == ("assumed", (0.5,) * 3)


def test_assumed_by_a_distillation_token_or_layer_scale_with_a_class_token(tmp_path):
    weights = golden_weights("timm_token")
    _, positions, width = weights["pos_embed"].shape
    token, scale = np.zeros((1, 1, width), "float32"), np.ones(width, "float32")
    distilled = {"dist_token": token, "pos_embed": np.zeros((1, positions + 1, width), "float32")}
    for name, changes in (("distilled", distilled), ("scaled", {"blocks.0.ls1.gamma": scale})):
        file = write_arrays(tmp_path / f"{name}.safetensors", {**weights, **changes})
        assert scaling(file) == ("assumed", MEAN)


def test_published_and_stated(tmp_path):
    assert scaling(named(tmp_path, "ViT-B_16.npz", "vit_jax_token")) == ("table", (0.5,) * 3)
    augreg = "B_16-i21k-300ep-lr_0.001-aug_medium1-wd_0.1-do_0.0-sd_0.0.npz"
    assert scaling(named(tmp_path, augreg, "vit_jax_token")) == ("table", (0.5,) * 3)
    file = named(tmp_path, "deit.safetensors", "timm_token")
    half = {"mean": [0.5] * 3, "std": [0.5] * 3}
    (tmp_path / "config.json").write_text(json.dumps({"pretrained_cfg": half}))
    assert scaling(file) == ("file", (0.5,) * 3)


def test_load_warns_once_unless_it_is_known(tmp_path):
    file = golden_file(tmp_path, "timm_token")
    message = r"^timm_token.safetensors does not state .*Assumed: mean=\(0.485, .*preprocessing=\"imagenet\", "
    with pytest.warns(PixelRangeWarning, match=message) as warned:
        model = keras_vit.load(file, num_heads=3, preprocessing={"mean": MEAN, "crop_fraction": 1})
    assert len(warned) == 1 and model.preprocessing.crop_fraction == 1


@pytest.mark.filterwarnings("error:.*does not state how its pixels:UserWarning")
def test_given(tmp_path):
    file = golden_file(tmp_path, "timm_token")
    for given in ("imagenet", IMAGENET, keras_vit.Preprocessing(1, **IMAGENET)):
        model = keras_vit.load(file, num_heads=3, preprocessing=given)
        found = model.preprocessing
        assert (found.mean, found.std, found.origin) == (*IMAGENET.values(), "user")
        assert found.image_size == model.image_size
        assert found.resize == ("squash" if isinstance(given, keras_vit.Preprocessing) else "shortest")
    model.save(tmp_path / "x.keras")
    again = keras_vit.load(tmp_path / "x.keras", preprocessing={"resize": "squash", "std": [0.2] * 3})
    assert (again.preprocessing.mean, again.preprocessing.std) == (MEAN, (0.2,) * 3)
    for given, message in (("imagnet", "Did you mean 'imagenet'"), ({"men": 1}, "the fields men"), (3, "Received: 3")):
        with pytest.raises(ValueError, match=message):
            keras_vit.load("missing", preprocessing=given)


def test_a_guess_stays_one_in_every_format(toy, tmp_path):
    for name in ("x.keras", "x.npz", "hf"):
        model = toy() if name == "x.npz" else toy(gelu="erf", epsilon=1e-12)
        keras_vit.weights.save(model, tmp_path / name)
        with pytest.warns(PixelRangeWarning):
            assert keras_vit.load(tmp_path / name, num_heads=3).preprocessing.origin == "assumed"
    model.preprocessing = "half"
    keras_vit.weights.save(model, tmp_path / "hf", overwrite=True)
    assert keras_vit.load(tmp_path / "hf").preprocessing.origin == "file"
