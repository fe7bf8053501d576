"""Saving: exact round trips, errors for what a format cannot store, never partial files."""

import json
import re

import numpy as np
import pytest
from goldens import golden_file, golden_weights
from safetensors import safe_open

import keras_vit
from keras_vit.images.resizing import size_before_crop
from keras_vit.models.bit import BiT
from keras_vit.weights import save

NPZ = {
    "token": {},
    "mean": {"pooling": "gap"},
    "hidden layer": {"representation_size": 7},
    "no head": {"num_classes": 0},
    "attention pooling": {"pooling": "map", "prefix_positions": False},
    "sine and cosine": {"pooling": "gap", "position_embedding": "sincos_2d", "prefix_positions": False},
    "class token without position": {"prefix_positions": False},
    "hybrid": {"resnet_stages": (), "patch_size": 8},
}
CROPPED = {"image_size": 16, "crop_fraction": 0.5, "interpolation": "bicubic", "antialias": True}
SAFETENSORS = {
    "token": {"gelu": "erf", "epsilon": 1e-12},
    "tanh": {"gelu": "tanh", "epsilon": 1e-5},
    "quick": {"gelu": "quick"},
    "not square": {"image_size": (12, 20)},
    "not square, cropped": {"image_size": (12, 20), "preprocessing": {"crop_fraction": 0.8}},
    "no head": {"num_classes": 0},
    "pooler": {"num_classes": 0, "representation_size": 7},
    "DeiT": {"distillation": True},
    "DeiT of one head": {"register_tokens": 1},
    "DeiT without head": {"register_tokens": 1, "num_classes": 0, "representation_size": 12},
    "two classes": {"num_classes": 2},
    "several labels": {"multi_label": True},
    "regression": {"projection": True, "num_classes": 1},
    "images": {"preprocessing": CROPPED},
    "shorter side": {"preprocessing": {"image_size": 16, "resize": "shortest", "mean": (0.4,) * 3, "antialias": True}},
}


def assert_same(loaded, model, ignored=()):
    differing = {name for name, value in vars(model.config).items() if getattr(loaded.config, name) != value}
    assert differing <= {"seed", "preprocessing", *ignored}
    for ours, theirs in zip(model.weights, loaded.weights, strict=True):
        assert ours.path.partition("/")[2] == theirs.path.partition("/")[2]
        np.testing.assert_array_equal(ours, theirs)


@pytest.mark.parametrize("kind", NPZ)
def test_npz_round_trip(kind, trained_toy, tmp_path):
    model = trained_toy(**NPZ[kind], depth=1)
    assert save(model, tmp_path / "x.npz") == [tmp_path / "x.npz"]
    # Only this file has no positions, from whose number the size follows.
    size = {"image_size": 16} if kind == "sine and cosine" else {}
    assert_same(keras_vit.load(tmp_path / "x.npz", **size), model)


@pytest.mark.parametrize("kind", SAFETENSORS)
def test_safetensors_round_trip(kind, trained_toy, tmp_path):
    model = trained_toy(**SAFETENSORS[kind], depth=1)
    files = save(model, tmp_path / "folder")
    assert [file.name for file in files] == ["model.safetensors", "config.json", "preprocessor_config.json"]
    assert len({file.stat().st_mode for file in files}) == 1
    loaded = keras_vit.load(tmp_path / "folder")
    assert_same(loaded, model)
    if model.multi_label:
        assert not keras_vit.load(tmp_path / "folder", num_classes=3).multi_label
    ours, theirs = model.preprocessing, loaded.preprocessing
    changes = {"antialias": True}
    if len({*model.image_size}) == 2:  # sides in pixels, of which a fraction follows only nearly
        sizes = {size_before_crop(one.image_size, one.crop_fraction) for one in (ours, theirs)}
        assert len(sizes) == 1
        changes["crop_fraction"] = theirs.crop_fraction
    assert theirs == keras_vit.Preprocessing(**{**ours.get_config(), **changes})


def pre_linen_name(name):
    """As in published files."""
    name = re.sub("MultiHeadDotProductAttention_0", "MultiHeadDotProductAttention_1", name)
    return name.replace("LayerNorm_1", "LayerNorm_2").replace("MlpBlock_0", "MlpBlock_3")


@pytest.mark.parametrize("golden", ["vit_jax_prelogits", "vit_jax_hybrid_r50like", "big_vision_map", "big_vision_tok"])
def test_jax_files_round_trip(golden, tmp_path):
    save(keras_vit.load(golden_file(tmp_path, golden)), tmp_path / "x.npz")
    saved, arrays = np.load(tmp_path / "x.npz"), golden_weights(golden)
    if golden.startswith("vit_jax"):
        arrays = {pre_linen_name(name): array for name, array in arrays.items()}
    assert sorted(saved.files) == sorted(arrays)
    for name, array in arrays.items():
        assert saved[name].dtype == np.float32
        np.testing.assert_array_equal(saved[name], array)


@pytest.mark.parametrize("golden", ["hf_vit", "hf_deit"])
def test_transformers_files_have_names_that_all_versions_read(golden, tmp_path):
    save(keras_vit.load(golden_file(tmp_path, golden), num_heads=3), tmp_path / "out")
    arrays, kind = golden_weights(golden), golden.partition("_")[2]
    renamed = {
        "encoder.layer.1.attention.attention.value.weight": "layers.1.attention.v_proj.weight",
        "encoder.layer.0.attention.output.dense.bias": "layers.0.attention.o_proj.bias",
        "encoder.layer.0.intermediate.dense.weight": "layers.0.mlp.fc1.weight",
        "encoder.layer.1.output.dense.weight": "layers.1.mlp.fc2.weight",
    }
    names = {f"{kind}.{old}": f"{kind}.{new}" for old, new in renamed.items()}
    names |= {name: name for name in arrays if ".layers." not in name}
    with safe_open(tmp_path / "out" / "model.safetensors", "numpy") as file:
        assert file.metadata() == {"format": "pt"} and len(list(file.keys())) == len(arrays)
        for old, new in names.items():
            np.testing.assert_array_equal(file.get_tensor(old), arrays[new])
    config = json.loads((tmp_path / "out" / "config.json").read_text())
    heads = {"vit": "ViTForImageClassification", "deit": "DeiTForImageClassificationWithTeacher"}
    expected = {"model_type": kind, "architectures": [heads[kind]], "hidden_size": 48, "intermediate_size": 96}
    expected |= {"num_hidden_layers": 2, "hidden_act": "gelu", "layer_norm_eps": 1e-12, "image_size": 64}
    assert config.items() >= (expected | {"num_attention_heads": 3, "patch_size": 16}).items()
    assert len(config["id2label"]) == 10


UNSUPPORTED = [
    ("x.npz", {"gelu": "erf"}, "gelu='erf', only 'tanh'"),
    ("x.npz", {"epsilon": 1e-12}, "epsilon=1e-12, only 1e-06"),
    ("x.npz", {"register_tokens": 2}, "register_tokens=2"),
    ("x.npz", {"pooling": "gap", "class_token": True}, "class_token=True"),
    ("x.npz", {"pooling": "none"}, "pooling='none'"),
    ("x.npz", {"layer_scale": 0.1}, "encoder/block_0/scale_attention/gamma"),
    ("x.npz", {"distillation": True}, "distillation_token/tokens, head_distillation"),
    ("x.npz", {"norm_after_pooling": True}, "pooled_norm"),
    ("x.npz", {"image_size": (8, 32)}, r"16 positions are a grid of \(2, 8\)"),
    ("x.npz", {"position_embedding": "sincos_2d"}, "prefix_positions=True"),
    ("x.npz", {"position_embedding": "learned_2d"}, "position_embedding='learned_2d'"),
    ("x.npz", {"swiglu": True}, "swiglu=True"),
    ("x.npz", {"pooling": "token_and_gap", "num_classes": 0}, "pooling='token_and_gap'"),
    ("x.npz", {"multi_label": True}, "multi_label=True"),
    ("folder", {"swiglu": True}, "swiglu=True"),
    ("folder", {"pooling": "token_and_gap"}, "pooling='token_and_gap'"),
    ("folder", {"pooling": "gap"}, "pooling='gap'"),
    ("folder", {"representation_size": 7}, "representation_size=7"),
    ("folder", {"qk_norm": True}, "encoder/block_0/attention/query_norm"),
    ("folder", {"resnet_stages": (), "patch_size": 8}, r"resnet_stages=\(\)"),
    ("folder", {"patch_size": (4, 8)}, r"patch_size=\(4, 8\)"),
    ("folder", {"image_size": (12, 20), "preprocessing": {"resize": "shortest"}}, "resize='shortest'.* 12 x 20"),
    ("folder", {"preprocessing": {"image_size": 16, "interpolation": "lanczos5"}}, "interpolation='lanczos5'"),
    ("x.bin", {}, r"Received: .*x\.bin"),
]


def test_models_that_a_format_cannot_store_raise(toy, tmp_path):
    for name, arguments, message in UNSUPPORTED:
        with pytest.raises(ValueError, match=message):
            save(toy(**arguments, depth=1), tmp_path / "new" / name)
    bit = BiT(stages=(1,), width_factor=0.5, name="other")
    axial = keras_vit.AxialResNet(image_size=32, stages=(1,), num_heads=1, name="other")
    for model, name in ((bit, "x.npz"), (axial, "x.npz"), (axial, "folder")):
        with pytest.raises(ValueError, match="Only a VisionTransformer .* Save other as"):
            save(model, tmp_path / "new" / name)
    assert not list(tmp_path.iterdir())


def test_existing_files_are_not_overwritten_by_default(toy, tmp_path):
    (tmp_path / "config.json").write_text("mine")
    with pytest.raises(FileExistsError, match=r"config\.json"):
        save(toy(depth=1), tmp_path)
    assert [file.name for file in tmp_path.iterdir()] == ["config.json"]
    save(toy(depth=1), tmp_path, overwrite=True)
    assert "hidden_size" in (tmp_path / "config.json").read_text() and len(list(tmp_path.iterdir())) == 3


@pytest.mark.parametrize("name", ["x.npz", "x.keras", "model.safetensors"])
def test_errors_leave_no_partial_files(name, toy, tmp_path, monkeypatch):
    model = toy(depth=1)
    for file in save(model, tmp_path / name):
        file.write_bytes(b"old")
    before = sorted(tmp_path.iterdir())

    def broken(*arguments, **options):
        arguments[0].write_bytes(b"half") if name == "x.npz" else None
        raise OSError("No space left on device")

    with monkeypatch.context() as patch, pytest.raises(OSError, match="No space left"):
        patch.setattr(np, "savez", broken)
        patch.setattr(json, "dumps", broken)  # after the weights of a .safetensors file, amid a .keras file
        save(model, tmp_path / name, overwrite=True)
    model.head.bias.assign(np.full(model.head.bias.shape, np.inf))
    with pytest.raises(ValueError, match="head/bias has values that are NaN or infinite"):
        save(model, tmp_path / name, overwrite=True)
    assert sorted(tmp_path.iterdir()) == before and {file.read_bytes() for file in before} == {b"old"}
