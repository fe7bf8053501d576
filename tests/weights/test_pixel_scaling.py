"""Mean and standard deviation of pixels: stated, published, given, or assumed and said so."""

import json

import numpy as np
import pytest
from goldens import golden_file, golden_weights, write_arrays

import keras_vit
from keras_vit.images.pixel_range import IMAGENET, PixelRangeWarning
from keras_vit.weights import open_checkpoint

MEAN, HALF = IMAGENET["mean"], (0.5, 0.5, 0.5)


def scaling(file):
    found = open_checkpoint(file).preprocessing
    return found["origin"], found.get("mean", HALF)


def named(path, golden):
    path.parent.mkdir(exist_ok=True)
    return golden_file(path.parent, golden).rename(path)


@pytest.mark.parametrize(
    "name,golden,origin,mean",
    [
        ("deit_tiny_patch16_224.safetensors", "timm_token", "assumed", MEAN),
        ("deit3_small_patch16_224.fb_in1k.safetensors", "timm_token", "assumed", MEAN),
        ("vit_base_patch16_224.dino.safetensors", "timm_token", "assumed", MEAN),
        ("vit_base_patch16_224.mae.safetensors", "timm_token", "assumed", MEAN),
        ("vit_base_patch16_224.augreg_in21k.safetensors", "timm_token", "assumed", HALF),
        ("maestro.safetensors", "timm_token", "assumed", HALF),
        ("x.safetensors", "hf_deit", "assumed", MEAN),
        ("x.safetensors", "hf_vit", "assumed", HALF),
        ("x.safetensors", "timm_layerscale_reg", "assumed", MEAN),
        ("deit.npz", "vit_jax_token", "assumed", HALF),
        ("dinov2-small/model.safetensors", "timm_token", "assumed", MEAN),  # by the name of the folder
        ("deit/other.safetensors", "timm_token", "assumed", HALF),
        ("ViT-B_16.npz", "vit_jax_token", "table", HALF),
        ("B_16-i21k-300ep-lr_0.001-aug_medium1-wd_0.1-do_0.0-sd_0.0.npz", "vit_jax_token", "table", HALF),
    ],
)
def test_assumed_or_published(tmp_path, name, golden, origin, mean):
    assert scaling(named(tmp_path / name, golden)) == (origin, mean)


def test_assumed_by_a_distillation_token_or_layer_scale_with_a_class_token(tmp_path):
    weights = golden_weights("timm_token")
    _, positions, width = weights["pos_embed"].shape
    token, scale = np.zeros((1, 1, width), "float32"), np.ones(width, "float32")
    distilled = {"dist_token": token, "pos_embed": np.zeros((1, positions + 1, width), "float32")}
    for name, changes in (("distilled", distilled), ("scaled", {"blocks.0.ls1.gamma": scale})):
        assert scaling(write_arrays(tmp_path / f"{name}.safetensors", {**weights, **changes})) == ("assumed", MEAN)


def test_stated(tmp_path):
    (tmp_path / "config.json").write_text(json.dumps({"pretrained_cfg": {"mean": HALF, "std": HALF}}))
    assert scaling(named(tmp_path / "deit.safetensors", "timm_token")) == ("file", HALF)


def test_load_warns_once_unless_it_is_known(tmp_path):
    file = golden_file(tmp_path, "timm_token")
    with pytest.warns(PixelRangeWarning, match=r"mean=\(0.485, .*preprocessing=\"imagenet\"") as warned:
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
    for given, message in (("imagnet", "Did you mean 'imagenet'"), ({"men": 1}, "men"), (3, "Received: 3")):
        with pytest.raises(ValueError, match=message):
            keras_vit.load("missing", preprocessing=given)


def test_a_guess_stays_one_in_every_format(toy, tmp_path):
    for name in ("x.keras", "x.npz", "hf"):
        model = toy(depth=1) if name == "x.npz" else toy(depth=1, gelu="erf", epsilon=1e-12)
        keras_vit.weights.save(model, tmp_path / name)
        with pytest.warns(PixelRangeWarning):
            assert keras_vit.load(tmp_path / name, num_heads=3).preprocessing.origin == "assumed"
    model.preprocessing = "half"
    keras_vit.weights.save(model, tmp_path / "hf", overwrite=True)
    assert keras_vit.load(tmp_path / "hf").preprocessing.origin == "file"
