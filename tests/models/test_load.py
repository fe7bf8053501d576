"""`keras_vit.load`: from a file to a model, changed as requested."""

import tracemalloc
import zipfile

import keras
import numpy as np
import pytest
from goldens import golden_file, golden_io, golden_weights

import keras_vit
from keras_vit.models.bit import BiT
from keras_vit.models.load_checkpoint import ImageSizeWarning
from keras_vit.weights import load_weights, open_checkpoint, save


@pytest.fixture
def hidden_file(tmp_path):
    """A file with a hidden tanh layer and 21 classes."""
    return golden_file(tmp_path, "vit_jax_prelogits")


@pytest.fixture
def keras_file(trained_toy, tmp_path):
    model = trained_toy(dropout=0.1)
    model.save(tmp_path / "toy.keras")
    return model, tmp_path / "toy.keras"


def test_head_and_hidden_layer_are_those_of_the_file(hidden_file):
    io, model = golden_io("vit_jax_prelogits"), keras_vit.load(str(hidden_file), name="mine")
    assert model.num_classes == 21 and model.name == "mine" and model.config.representation_size == 32
    np.testing.assert_allclose(model(io["images"]), io["outputs"], atol=1e-4)


def test_another_number_of_classes_replaces_the_head_and_removes_the_hidden_layer(hidden_file):
    images, whole = golden_io("vit_jax_prelogits")["images"], keras_vit.load(hidden_file)
    features = whole.pooling(whole.encode(whole.embed(images)))
    model = keras_vit.load(hidden_file, num_classes=5)
    assert model.pre_logits is None and not np.any(model.head.kernel)
    np.testing.assert_allclose(model.features(images), features, atol=1e-5)
    np.testing.assert_allclose(keras_vit.load(hidden_file, num_classes=0)(images), features, atol=1e-5)
    kept = keras_vit.load(hidden_file, num_classes=5, representation_size=32)
    np.testing.assert_allclose(kept.features(images), whole.features(images), atol=1e-5)


def test_num_classes_replaces_both_heads_of_deit(tmp_path):
    file, io = golden_file(tmp_path, "hf_deit"), golden_io("hf_deit")
    model = keras_vit.load(file, num_heads=3, num_classes=4)
    assert model(io["images"]).shape == (2, 4) and not np.any(model.head_distillation.kernel)


def test_class_names_beside_weights_are_those_of_a_kept_head(trained_toy, tmp_path):
    save(trained_toy(), tmp_path / "x.npz", class_names=list("abcde"))
    names = [keras_vit.load(tmp_path / "x.npz", num_classes=count).class_names for count in (None, 5, 4, 0)]
    assert names == [tuple("abcde"), tuple("abcde"), None, None]


def test_an_assumed_image_size_is_a_warning(tmp_path):
    file = golden_file(tmp_path, "big_vision_gap_sincos2d")
    with pytest.warns(ImageSizeWarning, match=r"npz does not state the size of its images. Assumed: 224 pixels"):
        assert keras_vit.load(file).image_size == (224, 224)
    published = file.rename(tmp_path / "vit_s16_i1k_90ep.npz")
    assert keras_vit.load(published).image_size == (224, 224)  # without a warning, and so is the next
    assert keras_vit.load(published.rename(file), image_size=64).image_size == (64, 64)


@pytest.mark.parametrize("form", ["v1", "paper"])
def test_num_classes_replaces_the_head_of_bit(form, tmp_path):
    golden = f"big_vision_bit_{form}"
    file, images = golden_file(tmp_path, golden), golden_io(golden)["images"]
    model, whole = keras_vit.load(file, num_classes=3), keras_vit.load(file)
    assert isinstance(model, BiT) and model(images).shape == (2, 3) and not np.any(model.head.kernel)
    np.testing.assert_allclose(model.features(images), whole.features(images), atol=1e-6)
    assert keras_vit.load(file, image_size=32).image_size == (32, 32)


def test_constructors_take_files(hidden_file):
    shape = {"depth": 2, "width": 48, "mlp_dim": 96, "num_heads": 3}
    model = keras_vit.ViT("Ti/16", str(hidden_file), image_size=96, num_classes=5, **shape)
    assert model.name == "ViT_Ti16" and model.grid == (6, 6) and model.num_classes == 5
    assert keras_vit.ViT("Ti/16", hidden_file, **shape).image_size == (64, 64)
    with pytest.raises(ValueError, match=r"do not match the model(.|\n)*width=192 \(file: 48\)"):
        keras_vit.ViT_Ti16(hidden_file)


def test_resample_selects_how_positions_are_resampled(hidden_file):
    table = golden_weights("vit_jax_prelogits")["Transformer/posembed_input/pos_embedding"]
    for arguments, resample in (({}, "corners"), ({"resample": "bicubic"}, "bicubic")):
        model = keras_vit.load(hidden_file, image_size=(96, 32), **arguments)
        expected = keras_vit.layers.resample_grid(table, (4, 4), (6, 2), resample, 1)
        np.testing.assert_array_equal(model.positions.table, expected)
    assert model.preprocessing.image_size == model.image_size == (96, 32)
    with pytest.raises(ValueError, match="`resample` must be one of"):
        keras_vit.load(hidden_file, image_size=96, resample="nearest")


def test_arguments_without_weights_may_differ(hidden_file):
    prepare = keras_vit.Preprocessing(1, crop_fraction=0.5)
    model = keras_vit.load(hidden_file, dropout=0.2, dtype="mixed_bfloat16", preprocessing=prepare, epsilon=1e-5)
    assert model.config.dropout == 0.2 and model.compute_dtype == "bfloat16"
    assert model.preprocessing == prepare.at(64) and model.config.epsilon == 1e-5


def test_arguments_that_do_not_fit_the_weights(hidden_file):
    cases = [
        ({"width": 24}, r"width=24 \(file: 48\)"),
        ({"num_heads": 4}, r"num_heads=4 \(file: 3\)"),
        ({"num_heads": 5}, "`num_heads` must divide the width. Received: num_heads=5, width=48"),
        ({"patch_size": 8}, r"has patches of \(16, 16\) pixels. Received: patch_size=8. .*model.with_patch_size\(8\)"),
        ({"layer_scale": 0.1}, r"4 missing, 0 unused(.|\n)*\(encoder/block_0/scale_attention/gamma\)"),
        ({"distillation": True, "representation_size": None}, "distillation_token/tokens"),
        ({"image_size": 50}, "cannot be cut into patches"),
        ({"image_size": "big"}, "`image_size` must be a positive integer"),
    ]
    for arguments, message in cases:
        with pytest.raises(ValueError, match=message):
            keras_vit.load(hidden_file, **arguments)


@pytest.mark.slow
def test_keras_files(keras_file, images):
    model, file = keras_file
    np.testing.assert_array_equal(keras_vit.load(file)(images), model(images))
    np.testing.assert_array_equal(keras_vit.load(str(file), num_classes=5, patch_size=4)(images), model(images))
    with pytest.raises(ValueError, match=r"Received: patch_size=8. Load it without patch_size"):
        keras_vit.load(file, patch_size=8)
    changed = keras_vit.load(file, dropout=0.3, name="other", dtype="mixed_bfloat16")
    assert (changed.name, changed.config.dropout, changed.compute_dtype) == ("other", 0.3, "bfloat16")
    np.testing.assert_array_equal(changed.head.kernel, model.head.kernel)
    other = keras_vit.load(file, num_classes=3, image_size=(8, 24), resample="bicubic")
    expected = keras_vit.layers.resample_grid(model.positions.table, (4, 4), (2, 6), "bicubic", 1)
    np.testing.assert_array_equal(other.positions.table, expected)
    assert other.num_classes == 3 and not np.any(other.head.kernel)
    for arguments in ({"width": 24}, {"num_heads": 4}):
        with pytest.raises(ValueError, match=rf"{arguments} does not fit the weights .* saved with .*'num_heads': 3"):
            keras_vit.load(file, **arguments)


def test_whole_models_in_hdf5(toy, tmp_path):
    model, file = toy(depth=1), tmp_path / "model.h5"
    with pytest.raises(ValueError, match=r"ends in .keras. Received: .*model.h5. .*save_weights"):
        model.save(file)
    assert not file.exists()
    keras.Model.save(model, file)
    with pytest.raises(ValueError, match=r"A whole model in HDF5: keras.saving.load_model\(path, custom_objects"):
        keras_vit.load(file)
    loaded = keras.saving.load_model(file, custom_objects=vars(keras_vit))
    images = np.zeros((1, 16, 16, 3), "float32")
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
    with pytest.raises(FileNotFoundError, match=r"Model file not found: .*nowhere\.keras"):
        keras_vit.load(tmp_path / "nowhere.keras")
    with pytest.raises(ValueError, match="contains a Sequential. Expected a model of keras_vit"):
        keras_vit.load(tmp_path / "other.keras")
    with pytest.raises(ValueError, match="cannot be read as a model of keras_vit: .*NeverHeardOf"):
        keras_vit.load(tmp_path / "unknown.keras")
    (tmp_path / "empty.keras").touch()
    for name in ("half", "empty"):
        with pytest.raises(ValueError, match=rf"{name}\.keras is not a \.keras file, or truncated \("):
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


@pytest.mark.slow
def test_h5_weights_load_into_a_named_model(tmp_path):
    model = keras_vit.ViT("Ti/16", image_size=32, num_classes=5)
    for weight in model.weights:
        weight.assign(weight + 0.01 * np.random.default_rng(0).standard_normal(weight.shape))
    model.save_weights(tmp_path / "own.weights.h5")
    again = keras_vit.ViT_Ti16(weights=tmp_path / "own.weights.h5", image_size=32, num_classes=5)
    images = np.random.default_rng(1).uniform(-1, 1, (2, 32, 32, 3)).astype("float32")
    np.testing.assert_array_equal(again(images), model(images))
    with pytest.raises(ValueError, match="but not its configuration. Missing: patch_size, depth, .*Name the model"):
        keras_vit.load(tmp_path / "own.weights.h5")
    with pytest.raises(ValueError, match="Missing: patch_size, width, mlp_dim, num_heads. Name the model"):
        keras_vit.load(tmp_path / "own.weights.h5", depth=12)
    bit = keras_vit.BiT(stages=(1,), width_factor=0.5, num_classes=5)
    bit.save_weights(tmp_path / "bit.weights.h5")
    again = keras_vit.load(tmp_path / "bit.weights.h5", stages=(1,), width_factor=0.5, num_classes=5)
    np.testing.assert_array_equal(again.features(images), bit.features(images))


@pytest.mark.slow
def test_h5_weights_specify_the_number_of_classes_only(trained_toy, images, tmp_path):
    file, shape = tmp_path / "own.weights.h5", {"depth": 1, "width": 12, "mlp_dim": 24, "num_heads": 3, "patch_size": 4}
    model = trained_toy(depth=1, image_size=16)
    model.save_weights(file)
    features = np.asarray(model.features(images))
    np.testing.assert_array_equal(keras_vit.load(file, image_size=16, **shape)(images), model(images))
    np.testing.assert_array_equal(keras_vit.load(file, image_size=16, num_classes=0, **shape)(images), features)
    other = keras_vit.load(file, image_size=16, num_classes=9, name="mine", **shape)
    assert other.num_classes == 9 and other.name == "mine" and not np.any(other.head.kernel)
    np.testing.assert_array_equal(other.features(images), features)
    with pytest.raises(ValueError, match=r"load it at its own image_size and use model.resized\(size\)"):
        keras_vit.load(file, image_size=32, **shape)
    for ignored in ({"resample": "bicubic"}, {"weights_image_size": 16}):
        with pytest.raises(ValueError, match=r"use model.resized\(size, resample\) afterwards"):
            keras_vit.load(file, image_size=16, **ignored, **shape)
    headless = model.with_head(0)
    headless.save_weights(file)
    assert keras_vit.load(file, image_size=16, **shape).num_classes == 0


@pytest.mark.parametrize("options", [{"depth": 2}, {"layer_scale": 0.1}, {"representation_size": 12}], ids=str)
def test_h5_weights_of_another_model_raise(trained_toy, tmp_path, options):
    file, shape = tmp_path / "own.weights.h5", {"depth": 1, "width": 12, "mlp_dim": 24, "num_heads": 3, "patch_size": 4}
    trained_toy(**{"depth": 1, **options}).save_weights(file)
    with pytest.raises(ValueError, match=r"does not hold the weights of .* The file has \d+ arrays, the model \d+"):
        keras_vit.load(file, image_size=16, **shape)


def test_the_folder_of_a_run(trained_toy, tmp_path):
    model = trained_toy(num_classes=4)
    model.save(tmp_path / "model.keras")
    (tmp_path / "recipe.json").write_text("{}")
    images = np.random.default_rng(0).uniform(-1, 1, (2, *model.image_size, 3)).astype("float32")
    np.testing.assert_allclose(keras_vit.load(tmp_path)(images), model(images), atol=1e-6)
    assert keras_vit.load(str(tmp_path), num_classes=7).num_classes == 7


def test_axial_resnets(tmp_path):
    model = keras_vit.AxialResNet(image_size=32, num_classes=3, stages=(1,), num_heads=2)
    model.save(tmp_path / "axial.keras")
    images = np.random.default_rng(0).uniform(-1, 1, (2, 32, 32, 3)).astype("float32")
    found = keras_vit.load(tmp_path / "axial.keras")
    np.testing.assert_allclose(found(images), model(images), atol=1e-6)
    assert keras_vit.load(tmp_path / "axial.keras", num_classes=5).num_classes == 5
    with pytest.raises(ValueError, match=r"AxialResNet of \(32, 32\) pixels, whose positions fit no other size"):
        keras_vit.load(tmp_path / "axial.keras", image_size=64)
