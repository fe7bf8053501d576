"""`keras_vit.load`: from a file to a model, changed as requested."""

import tracemalloc
import zipfile

import keras
import numpy as np
import pytest
from goldens import golden_file, golden_io, golden_weights

import keras_vit
from keras_vit.models.load import ImageSizeWarning
from keras_vit.weights import load_weights, open_checkpoint, save

SMALL = {"stages": (1,), "width_factor": 0.5}
SHAPE = {"depth": 1, "width": 12, "mlp_dim": 24, "num_heads": 3, "patch_size": 4}


@pytest.fixture(scope="module")
def hidden_file(tmp_path_factory):
    """A file with a hidden tanh layer and 21 classes."""
    return golden_file(tmp_path_factory.mktemp("golden"), "vit_jax_prelogits")


def test_another_number_of_classes_replaces_the_head_and_removes_the_hidden_layer(hidden_file):
    io, whole = golden_io("vit_jax_prelogits"), keras_vit.load(str(hidden_file), name="mine")
    assert (whole.num_classes, whole.name, whole.config.representation_size) == (21, "mine", 32)
    np.testing.assert_allclose(whole(io["images"]), io["outputs"], atol=1e-4)
    features = whole.pooling(whole.encode(whole.embed(io["images"])))
    model = keras_vit.load(hidden_file, num_classes=5)
    assert model.pre_logits is None and not np.any(model.head.kernel)
    np.testing.assert_allclose(model.features(io["images"]), features, atol=1e-5)
    np.testing.assert_allclose(keras_vit.load(hidden_file, num_classes=0)(io["images"]), features, atol=1e-5)
    kept = keras_vit.load(hidden_file, num_classes=5, representation_size=32)
    np.testing.assert_allclose(kept.features(io["images"]), whole.features(io["images"]), atol=1e-5)


def test_num_classes_replaces_the_heads_of_deit_and_bit(tmp_path):
    images = golden_io("hf_deit")["images"]
    deit = keras_vit.load(golden_file(tmp_path, "hf_deit"), num_heads=3, num_classes=4)
    assert deit(images).shape == (2, 4) and not np.any(deit.head_distillation.kernel)
    for golden in ("big_vision_bit_v1", "big_vision_bit_paper"):
        file, images = golden_file(tmp_path, golden), golden_io(golden)["images"]
        model, whole = keras_vit.load(file, num_classes=3, image_size=32), keras_vit.load(file)
        assert isinstance(model, keras_vit.BiT) and model.image_size == (32, 32)
        assert model(images).shape == (2, 3) and not np.any(model.head.kernel)
        np.testing.assert_allclose(model.features(images), whole.features(images), atol=1e-6)


def test_an_assumed_image_size_is_a_warning(tmp_path):
    file = golden_file(tmp_path, "big_vision_gap_sincos2d")
    with pytest.warns(ImageSizeWarning, match="224"):
        assert keras_vit.load(file).image_size == (224, 224)
    published = file.rename(tmp_path / "vit_s16_i1k_90ep.npz")
    assert keras_vit.load(published).image_size == (224, 224)  # without a warning, and so is the next
    assert keras_vit.load(published.rename(file), image_size=64).image_size == (64, 64)


def test_constructors_take_files(hidden_file):
    shape = {"depth": 2, "width": 48, "mlp_dim": 96, "num_heads": 3}
    model = keras_vit.ViT("Ti/16", str(hidden_file), image_size=96, num_classes=5, **shape)
    assert model.name == "ViT_Ti16" and model.grid == (6, 6) and model.num_classes == 5
    assert keras_vit.ViT("Ti/16", hidden_file, **shape).image_size == (64, 64)
    with pytest.raises(ValueError, match=r"width=192 \(file: 48\)"):
        keras_vit.ViT_Ti16(hidden_file)


@pytest.mark.parametrize("arguments,resample", [({}, "corners"), ({"resample": "bicubic"}, "bicubic")])
def test_resample_selects_how_positions_are_resampled(hidden_file, arguments, resample):
    table = golden_weights("vit_jax_prelogits")["Transformer/posembed_input/pos_embedding"]
    prepare = keras_vit.Preprocessing(1, crop_fraction=0.5)
    model = keras_vit.load(
        hidden_file, image_size=(96, 32), dropout=0.2, preprocessing=prepare, epsilon=1e-5, **arguments
    )
    assert (model.config.dropout, model.config.epsilon, model.preprocessing) == (0.2, 1e-5, prepare.at((96, 32)))
    expected = keras_vit.layers.resample_grid(table, (4, 4), (6, 2), resample, 1)
    np.testing.assert_array_equal(model.positions.table, expected)


@pytest.mark.parametrize(
    "arguments,message",
    [
        ({"width": 24}, r"width=24 \(file: 48\)"),
        ({"num_heads": 4}, r"num_heads=4 \(file: 3\)"),
        ({"num_heads": 5}, "num_heads=5, width=48"),
        ({"patch_size": 8}, r"patch_size=8. .*model.with_patch_size\(8\)"),
        ({"layer_scale": 0.1}, r"4 missing, 0 unused(.|\n)*\(encoder/block_0/scale_attention/gamma\)"),
        ({"distillation": True, "representation_size": None}, "distillation_token/tokens"),
        ({"image_size": 50}, "patches"),
        ({"image_size": "big"}, "`image_size`"),
        ({"image_size": 96, "resample": "nearest"}, "`resample`"),
    ],
)
def test_arguments_that_do_not_fit_the_weights(hidden_file, arguments, message):
    with pytest.raises(ValueError, match=message):
        keras_vit.load(hidden_file, **arguments)


@pytest.mark.slow
def test_keras_files(trained_toy, images, tmp_path):
    model, file = trained_toy(dropout=0.1, depth=1), tmp_path / "toy.keras"
    model.save(file)
    np.testing.assert_array_equal(keras_vit.load(str(file), num_classes=5, patch_size=4)(images), model(images))
    changed = keras_vit.load(file, dropout=0.3, name="other", dtype="mixed_bfloat16")
    assert (changed.name, changed.config.dropout, changed.compute_dtype) == ("other", 0.3, "bfloat16")
    np.testing.assert_array_equal(changed.head.kernel, model.head.kernel)
    other = keras_vit.load(file, num_classes=3, image_size=(8, 24), resample="bicubic")
    expected = keras_vit.layers.resample_grid(model.positions.table, (4, 4), (2, 6), "bicubic", 1)
    np.testing.assert_array_equal(other.positions.table, expected)
    assert other.num_classes == 3 and not np.any(other.head.kernel)
    for arguments, word in (
        ({"width": 24}, "width"),
        ({"num_heads": 4}, "num_heads"),
        ({"patch_size": 8}, "patch_size=8"),
    ):
        with pytest.raises(ValueError, match=word):
            keras_vit.load(file, **arguments)


def test_a_policy_for_each_layer_is_kept(toy, images, tmp_path):
    policies = keras.dtype_policies.DTypePolicyMap("float32")
    policies["vit/encoder/block_0/mlp/out"] = keras.dtype_policies.DTypePolicy("mixed_bfloat16")
    model, file = toy(depth=1, dtype=policies, name="vit"), tmp_path / "vit.keras"
    model.save(file)
    for loaded in (keras_vit.load(file), keras_vit.load(file, dropout=0.1)):
        assert loaded.encoder.blocks[0].mlp.out.compute_dtype == "bfloat16"
        np.testing.assert_array_equal(loaded.features(images), model.features(images))
    assert keras_vit.load(file, dtype="float32").encoder.blocks[0].mlp.out.compute_dtype == "float32"


def test_whole_models_in_hdf5(toy, tmp_path):
    model, file = toy(depth=1), tmp_path / "model.h5"
    with pytest.raises(ValueError, match=".keras"):
        model.save(file)
    assert not file.exists()
    keras.Model.save(model, file)
    with pytest.raises(ValueError, match="custom_objects"):
        keras_vit.load(file)
    loaded, images = keras.saving.load_model(file, custom_objects=vars(keras_vit)), np.zeros((1, 16, 16, 3), "float32")
    np.testing.assert_array_equal(loaded(images), model(images))


def test_keras_files_without_a_model_of_keras_vit(toy, tmp_path):
    keras.Sequential([keras.Input((2,)), keras.layers.Dense(1)]).save(tmp_path / "other.keras")
    toy().save(tmp_path / "unknown.keras")
    with zipfile.ZipFile(tmp_path / "unknown.keras") as file:
        contents = {name: file.read(name) for name in file.namelist()}
    with zipfile.ZipFile(tmp_path / "unknown.keras", "w") as file:
        for name, content in contents.items():
            file.writestr(name, content.replace(b"VisionTransformer", b"NeverHeardOf").replace(b"keras_vit", b"nobody"))
    whole = (tmp_path / "other.keras").read_bytes()
    (tmp_path / "half.keras").write_bytes(whole[: len(whole) // 2])
    (tmp_path / "empty.keras").touch()
    for name, error, word in (
        ("nowhere", FileNotFoundError, "nowhere.keras"),
        ("other", ValueError, "Sequential"),
        ("unknown", ValueError, "NeverHeardOf"),
        ("half", ValueError, "half.keras is not a .keras file, or truncated"),
        ("empty", ValueError, "empty.keras is not a .keras file, or truncated"),
    ):
        with pytest.raises(error, match=word):
            keras_vit.load(tmp_path / f"{name}.keras")


@pytest.mark.parametrize("name", ["x.npz", "folder"])
def test_memory_of_loading(name, toy, tmp_path):
    shape = {"depth": 4, "width": 192, "mlp_dim": 768}
    save(toy(**shape), tmp_path / name)
    model, checkpoint = toy(**shape), open_checkpoint(tmp_path / name)
    weights = sum(4 * weight.size for weight in model.get_weights())
    load_weights(model, checkpoint)  # what is imported or cached at the first use
    tracemalloc.start()
    try:
        load_weights(model, checkpoint)
        assert tracemalloc.get_traced_memory()[1] <= 1.2 * weights
    finally:
        tracemalloc.stop()


def test_h5_weights_load_into_a_named_model(tmp_path):
    options, file = {"image_size": 16, "num_classes": 5, "depth": 1}, tmp_path / "own.weights.h5"
    model = keras_vit.ViT("Ti/16", **options)
    for weight in model.weights:
        weight.assign(weight + 0.01 * np.random.default_rng(0).standard_normal(weight.shape))
    model.save_weights(file)
    again = keras_vit.ViT_Ti16(weights=file, **options)
    images = np.random.default_rng(1).uniform(-1, 1, (2, 16, 16, 3)).astype("float32")
    np.testing.assert_array_equal(again(images), model(images))
    for arguments, missing in (({}, "patch_size, depth, "), ({"depth": 12}, "patch_size, width, mlp_dim, num_heads")):
        with pytest.raises(ValueError, match=f"Missing: {missing}"):
            keras_vit.load(file, **arguments)
    bit = keras_vit.BiT(**SMALL, num_classes=5)
    bit.save_weights(file)
    np.testing.assert_array_equal(keras_vit.load(file, **SMALL, num_classes=5).features(images), bit.features(images))


@pytest.mark.slow
def test_h5_weights_specify_the_number_of_classes_only(trained_toy, images, tmp_path):
    file, model = tmp_path / "own.weights.h5", trained_toy(depth=1, image_size=16)
    model.save_weights(file)
    features = np.asarray(model.features(images))
    np.testing.assert_array_equal(keras_vit.load(file, image_size=16, **SHAPE)(images), model(images))
    np.testing.assert_array_equal(keras_vit.load(file, image_size=16, num_classes=0, **SHAPE)(images), features)
    other = keras_vit.load(file, image_size=16, num_classes=9, name="mine", **SHAPE)
    assert other.num_classes == 9 and other.name == "mine" and not np.any(other.head.kernel)
    np.testing.assert_array_equal(other.features(images), features)
    for options in ({"image_size": 32}, {"resample": "bicubic"}, {"weights_image_size": 16}):
        with pytest.raises(ValueError, match=r"model.resized\(size"):
            keras_vit.load(file, **{"image_size": 16, **options}, **SHAPE)
    model.with_head(0).save_weights(file)
    assert keras_vit.load(file, image_size=16, **SHAPE).num_classes == 0


def test_h5_weights_of_another_model_raise(toy, tmp_path):
    for options in ({"depth": 2}, {"layer_scale": 0.1}, {"representation_size": 12}):
        toy(**{"depth": 1, **options}).save_weights(tmp_path / "own.weights.h5")
        with pytest.raises(ValueError, match=r"The file has \d+ arrays, the model \d+"):
            keras_vit.load(tmp_path / "own.weights.h5", image_size=16, **SHAPE)
