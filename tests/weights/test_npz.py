from pathlib import Path

import numpy as np
import pytest

import keras_vit
from keras_vit.weights import load_npz

DATA = Path(__file__).parents[1] / "data"
SHAPE = {"patch_size": 16, "depth": 2, "width": 48, "mlp_dim": 96, "num_heads": 3}
GOLDENS = {
    "vit_jax_token": {"num_classes": 10},
    "vit_jax_gap": {"num_classes": 10, "pooling": "gap"},
    "vit_jax_prelogits": {"num_classes": 21, "representation_size": 32},
    "vit_jax_unpooled": {"num_classes": 0, "pooling": "none"},
    "vit_jax_token_nonsquare": {"num_classes": 10, "image_size": (48, 80)},
}
PRE_LINEN = {
    "MultiHeadDotProductAttention_0": "MultiHeadDotProductAttention_1",
    "LayerNorm_1": "LayerNorm_2",
    "MlpBlock_0": "MlpBlock_3",
}


def build(**arguments):
    return keras_vit.VisionTransformer(**{"image_size": 64, **SHAPE, **arguments})


def saved(path, **changes):
    """The token golden's file with some arrays changed, or left out where the change is None."""
    arrays = {**np.load(DATA / "vit_jax_token.npz"), **changes}
    np.savez(path, **{name: array for name, array in arrays.items() if array is not None})
    return path


@pytest.mark.parametrize("name", GOLDENS)
def test_equals_the_papers_code(name):
    model = build(**GOLDENS[name])
    report = load_npz(model, DATA / f"{name}.npz")
    golden = np.load(DATA / f"{name}_io.npz")
    np.testing.assert_allclose(model(golden["images"]), golden["outputs"], atol=1e-4)
    assert report.loaded == len(model.weights) and not report.skipped and not report.kept and report.resized is None


def test_pre_linen_names(tmp_path):
    arrays = np.load(DATA / "vit_jax_token.npz")
    rename = lambda name: "/".join(PRE_LINEN.get(part, part) for part in name.split("/"))  # noqa: E731
    np.savez(tmp_path / "old.npz", **{rename(name): arrays[name] for name in arrays.files})
    assert "Transformer/encoderblock_0/MlpBlock_3/Dense_0/kernel" in np.load(tmp_path / "old.npz").files
    model, golden = build(num_classes=10), np.load(DATA / "vit_jax_token_io.npz")
    load_npz(model, tmp_path / "old.npz")
    np.testing.assert_allclose(model(golden["images"]), golden["outputs"], atol=1e-4)


def vit(weights, **arguments):
    """The zoo's path from a file to a model, for the goldens' toy shape."""
    return keras_vit.ViT("Ti/16", str(weights), **{"image_size": 64, **SHAPE, **arguments})


def test_zoo_takes_head_and_hidden_layer_from_the_file():
    golden = np.load(DATA / "vit_jax_prelogits_io.npz")
    model = vit(DATA / "vit_jax_prelogits.npz")
    assert model.num_classes == 21
    np.testing.assert_allclose(model(golden["images"]), golden["outputs"], atol=1e-4)


def test_zoo_replaces_the_head_and_drops_the_hidden_layer_for_another_number_of_classes():
    model = vit(DATA / "vit_jax_prelogits.npz", num_classes=5)
    assert model.pre_logits is None and not np.any(model.head.kernel)
    whole = vit(DATA / "vit_jax_prelogits.npz")
    images = np.load(DATA / "vit_jax_prelogits_io.npz")["images"]
    np.testing.assert_allclose(model.features(images), whole.pooling(whole.encode(whole.embed(images))), atol=1e-6)
    assert vit(DATA / "vit_jax_prelogits.npz", num_classes=0)(images).shape == (2, 48)


def test_positions_are_resized_to_the_model():
    source = np.load(DATA / "vit_jax_token.npz")["Transformer/posembed_input/pos_embedding"]
    model = build(num_classes=10, image_size=(96, 48))
    report = load_npz(model, DATA / "vit_jax_token.npz")
    assert report.resized == ((4, 4), (6, 3))
    expected = keras_vit.layers.resample_grid(source, (4, 4), (6, 3), prefix_tokens=1)
    np.testing.assert_array_equal(model.positions.table, expected)


def test_a_grid_that_is_not_square_must_be_named():
    file = DATA / "vit_jax_token_nonsquare.npz"
    with pytest.raises(ValueError, match=r"15 positions.*weights_image_size=\(height, width\)"):
        vit(file)
    assert vit(file, weights_image_size=(48, 80)).grid == (4, 4)
    with pytest.raises(ValueError, match=r"grid of \(4, 5\) patches, but .* has 15 positions"):
        vit(file, weights_image_size=(64, 80))


def test_a_grid_that_could_be_two_must_be_named():
    with pytest.raises(ValueError, match="more than one grid"):
        vit(DATA / "vit_jax_token.npz", image_size=(32, 128))
    resized = vit(DATA / "vit_jax_token.npz", image_size=(32, 128), weights_image_size=64)
    as_is = vit(DATA / "vit_jax_token.npz", image_size=(32, 128), weights_image_size=(32, 128))
    assert not np.allclose(resized.positions.table, as_is.positions.table)


def test_everything_that_does_not_fit_is_listed_and_nothing_is_loaded(tmp_path):
    file = saved(
        tmp_path / "bad.npz",
        cls=None,
        stray=np.zeros(3, "float32"),
        **{"head/kernel": np.zeros((48, 7), "float32"), "embedding/bias": np.zeros(40, "float32")},
    )
    model = build(num_classes=10)
    before = [weight.numpy() for weight in model.weights]
    with pytest.raises(ValueError) as error:
        load_npz(model, file)
    text = str(error.value)
    assert "1 missing, 1 unused, 2 misshapen" in text and "nothing was loaded" in text
    assert [line.split() for line in text.splitlines() if "cls" in line] == [["cls", "stray"]]
    assert any(line.split() == ["head/kernel", "(48,", "7)", "(48,", "10)"] for line in text.splitlines())
    assert "skip=(...)" in text
    for weight, value in zip(model.weights, before):
        np.testing.assert_array_equal(weight, value)


def test_the_wrong_variant_is_an_error():
    with pytest.raises(ValueError, match="16 missing, 0 unused"):
        vit(DATA / "vit_jax_token.npz", depth=3)
    with pytest.raises(ValueError, match="0 missing, 16 unused"):
        vit(DATA / "vit_jax_token.npz", depth=1)
    with pytest.raises(ValueError, match="0 missing, 0 unused, 29 misshapen"):
        vit(DATA / "vit_jax_token.npz", width=24)


def test_a_class_token_on_one_side_only_is_named():
    with pytest.raises(ValueError, match=r"0 missing, 1 unused, 1 misshapen(.|\n)*cls(.|\n)*\(1, 17, 48\)"):
        vit(DATA / "vit_jax_token.npz", pooling="gap")
    with pytest.raises(ValueError, match=r"1 missing, 0 unused, 1 misshapen(.|\n)*cls"):
        vit(DATA / "vit_jax_gap.npz")
    assert vit(DATA / "vit_jax_token.npz", pooling="gap", class_token=True).prefix_tokens == 1


def test_skipped_parts_are_reported():
    model = build(num_classes=7)
    report = load_npz(model, DATA / "vit_jax_token.npz", skip=("head",))
    assert report.skipped == report.kept == ("head/bias", "head/kernel")
    assert report.loaded == len(model.weights) - 2


def test_files_that_cannot_be_read(tmp_path):
    with pytest.raises(FileNotFoundError, match=r"no weights file .*nowhere.npz"):
        vit(tmp_path / "nowhere.npz")
    whole = (DATA / "vit_jax_token.npz").read_bytes()
    for name, content in {
        "short.npz": whole[: len(whole) // 2],
        "empty.npz": b"",
        "text.npz": b"not a zip file",
    }.items():
        (tmp_path / name).write_bytes(content)
        with pytest.raises(ValueError, match=f"{name} cannot be read as an .npz file"):
            vit(tmp_path / name)


def test_pickled_objects_are_refused(tmp_path):
    file = saved(tmp_path / "evil.npz", cls=np.array([{"a": 1}], dtype=object))
    with pytest.raises(ValueError, match="cannot be read as an .npz file of plain arrays"):
        vit(file)


@pytest.mark.parametrize("value,message", [(np.nan, "cls holds NaN"), (np.inf, "cls holds NaN or infinite")])
def test_values_that_are_not_finite_are_refused(tmp_path, value, message):
    with pytest.raises(ValueError, match=message):
        vit(saved(tmp_path / "bad.npz", cls=np.full((1, 1, 48), value, "float32")))


def test_whole_numbers_are_refused(tmp_path):
    with pytest.raises(ValueError, match="cls has dtype int64"):
        vit(saved(tmp_path / "bad.npz", cls=np.zeros((1, 1, 48), "int64")))


def test_other_kinds_of_files_are_refused_with_the_remedy():
    with pytest.raises(ValueError, match=r"keras.saving.load_model\(file\)"):
        keras_vit.ViT_B16(weights="model.keras")
