"""Files of other projects: outputs equal theirs, and files that do not match raise an error with all differences."""

import numpy as np
import pytest
from goldens import FOUNDATION, GOLDENS, golden_file, golden_io, golden_weights

import keras_vit
from keras_vit.models.copying import copy_weights
from keras_vit.named_weights import named_weights
from keras_vit.weights import load_weights, open_checkpoint, save

SHAPE = {"patch_size": 16, "depth": 2, "width": 48, "mlp_dim": 96, "num_heads": 3}
# Arguments that are not in a file.
ARGUMENTS = {
    "hf_deit": {"num_heads": 3},
    "hf_vit": {"num_heads": 3},
    "hf_vit_mae": {"num_heads": 3},
    "big_vision_gap_sincos2d": {"image_size": 64},
    "timm_gap_fcnorm": {"num_heads": 3, "class_token": False},
    "timm_layerscale_reg": {"num_heads": 3},
    "timm_qk_norm": {"num_heads": 3},
    "timm_nonsquare": {"num_heads": 3, "weights_image_size": (48, 80)},
    "timm_token": {"num_heads": 3},
    "vit_jax_token_nonsquare": {"weights_image_size": (48, 80)},
    "vit_jax_unpooled": {"pooling": "none"},
}
SOURCES = {"vit_jax": ("tanh", 1e-6), "big_vision": ("tanh", 1e-6), "hf": ("erf", 1e-12), "timm": ("erf", 1e-6)}


@pytest.fixture
def token_file(tmp_path):
    return golden_file(tmp_path, "vit_jax_token")


@pytest.fixture
def load_golden(tmp_path):
    return lambda name, **changes: keras_vit.load(golden_file(tmp_path, name), **ARGUMENTS.get(name, {}), **changes)


def build(**arguments):
    return keras_vit.VisionTransformer(**{"image_size": 64, "num_classes": 10, **SHAPE, **arguments})


# Outputs of the others are compared in tests/models/ and test_foundation.py.
ELSEWHERE = ("timm_feature_maps", "timm_patch_dropout", *FOUNDATION)


@pytest.mark.parametrize("name", [name for name in GOLDENS if name not in ELSEWHERE])
def test_outputs_equal_the_original_implementation(name, load_golden):
    model, io = load_golden(name), golden_io(name)
    np.testing.assert_allclose(model(io["images"]), io["outputs" if "outputs" in io else "logits"], atol=1e-4)
    if "bit" not in name:  # the effect of epsilon is below the tolerance
        source = next(source for source in SOURCES if name.startswith(source))
        assert (model.config.gelu, model.config.epsilon) == SOURCES[source]


def test_attention_maps_and_tokens_equal_the_original_implementation(load_golden):
    model, io = load_golden("hf_vit"), golden_io("hf_vit")
    np.testing.assert_allclose(model.attention_maps(io["images"]), io["attentions"], atol=1e-5)
    normalized = model.encoder.norm(io["hidden"])  # theirs are before the final normalization
    np.testing.assert_allclose(model.encode(model.embed(io["images"])), normalized, atol=1e-4)
    model, io = load_golden("timm_token"), golden_io("timm_token")
    np.testing.assert_allclose(model.encode(model.embed(io["images"])), io["features"], atol=1e-4)


def test_both_heads_of_deit(load_golden):
    model, io = load_golden("hf_deit"), golden_io("hf_deit")
    first, second = model.both_heads(io["images"])
    np.testing.assert_allclose(first, io["cls_logits"], atol=1e-4)
    np.testing.assert_allclose(second, io["distillation_logits"], atol=1e-4)


def test_positions_are_resampled_as_in_the_source(load_golden):
    io = golden_io("hf_vit_96px")
    np.testing.assert_allclose(load_golden("hf_vit", image_size=96)(io["images"]), io["logits"], atol=1e-4)
    other = np.asarray(load_golden("hf_vit", image_size=96, resample="corners")(io["images"]))
    assert np.abs(other - io["logits"]).max() > 1e-3


def test_reports(token_file):
    model = build()
    report = load_weights(model, token_file)
    assert report.loaded == len(model.weights) and not report.skipped and not report.kept and report.resized is None
    model = build(num_classes=7)
    for skip in (("head",), "head"):
        report = load_weights(model, token_file, skip=skip)
        assert report.skipped == report.kept == ("head/bias", "head/kernel")
        assert report.loaded == len(model.weights) - 2 and not np.any(model.head.kernel)
    model = build(image_size=(96, 48))
    assert load_weights(model, open_checkpoint(token_file)).resized == ((4, 4), (6, 3))
    source = golden_weights("vit_jax_token")["Transformer/posembed_input/pos_embedding"]
    expected = keras_vit.layers.resample_grid(source, (4, 4), (6, 3), prefix_tokens=1)
    np.testing.assert_array_equal(model.positions.table, expected)


@pytest.mark.slow
@pytest.mark.parametrize("golden", ["vit_jax_token", "timm_token"])
def test_skip_blocks(golden, tmp_path):
    whole = keras_vit.load(golden_file(tmp_path, golden), **ARGUMENTS.get(golden, {}))
    model = whole.from_config(whole.get_config())
    before = named_weights(model)["encoder/block_1/attention/qkv/kernel"].numpy()
    report = load_weights(model, golden_file(tmp_path, golden), skip="encoder/block_1")
    assert len(report.kept) == 12 and len(report.skipped) in (12, 16) and "block_1" in report.kept[0]
    loaded, expected = named_weights(model), named_weights(whole)
    np.testing.assert_array_equal(loaded["encoder/block_1/attention/qkv/kernel"], before)
    for name in ("encoder/block_0/attention/qkv/kernel", "head/kernel", "positions/table"):
        np.testing.assert_array_equal(loaded[name], expected[name])
    shallow = whole.from_config({**whole.get_config(), "depth": 1})
    load_weights(shallow, golden_file(tmp_path, golden), skip=("encoder",))
    np.testing.assert_array_equal(shallow.head.kernel, whole.head.kernel)


def test_unknown_parts_raise(token_file):
    model = build()
    for skip in ("haed", ("head", "encoder/block_2"), ("encoder/",), "", "norm"):
        with pytest.raises(ValueError, match="Unknown part to skip: .*head_distillation"):
            load_weights(model, token_file, skip=skip)
        with pytest.raises(ValueError, match="Unknown part to skip"):
            copy_weights(model, model, skip=skip)


def test_num_heads_other_than_in_config_raises(tmp_path):
    save(build(num_heads=6, gelu="erf", epsilon=1e-12), tmp_path)
    with pytest.raises(ValueError, match="num_heads=6, but mine has num_heads=3"):
        keras_vit.load(tmp_path, num_heads=3, name="mine")
    with pytest.raises(ValueError, match="num_heads=6"):
        load_weights(build(gelu="erf", epsilon=1e-12), tmp_path)
    assert keras_vit.load(tmp_path).config.num_heads == 6
    (tmp_path / "config.json").unlink()  # the number of published models can be overridden
    assert keras_vit.load(tmp_path, num_heads=4).config.num_heads == 4


def test_grids_that_are_ambiguous_or_not_square_require_weights_image_size(tmp_path, token_file):
    file = golden_file(tmp_path, "vit_jax_token_nonsquare")
    for size in ({}, {"image_size": (80, 48)}):  # the same number of patches, but another grid
        with pytest.raises(ValueError, match="15 positions.*weights_image_size"):
            keras_vit.load(file, **size)
    with pytest.raises(ValueError, match=r"\(4, 5\) patches, but .* 15 positions"):
        keras_vit.load(file, weights_image_size=(64, 80))
    assert keras_vit.load(file, weights_image_size=(48, 80), image_size=64).grid == (4, 4)
    with pytest.raises(ValueError, match="ambiguous"):
        keras_vit.load(token_file, image_size=(32, 128))
    resized = keras_vit.load(token_file, image_size=(32, 128), weights_image_size=64)
    as_is = keras_vit.load(token_file, weights_image_size=(32, 128))
    assert resized.grid == as_is.grid == (2, 8)
    assert not np.allclose(resized.positions.table, as_is.positions.table)


def test_all_differences_are_listed_and_nothing_is_loaded(tmp_path):
    changes = {"cls": None, "stray": np.zeros(3, "float32"), "embedding/bias": np.zeros(40, "float32")}
    file = golden_file(tmp_path, "vit_jax_token", **changes, **{"head/kernel": np.zeros((48, 7), "float32")})
    model = build()
    before = model.get_weights()
    with pytest.raises(ValueError, match="1 missing, 1 unused, 2 of a different shape") as error:
        load_weights(model, file)
    lines = [line.split() for line in str(error.value).splitlines()]
    assert ["cls", "stray"] in lines and ["head/kernel", "(48,", "7)", "(48,", "10)"] in lines
    for value, old in zip(model.get_weights(), before):
        np.testing.assert_array_equal(value, old)


def test_message_has_the_arguments_that_differ(tmp_path, token_file):
    gap = golden_file(tmp_path, "vit_jax_gap")
    cases = [
        ({"depth": 3}, token_file, "16 missing, 0 unused, 0 of a different shape", "depth=3 (file: 2)"),
        ({"depth": 1}, token_file, "0 missing, 16 unused, 0 of a different shape", "depth=1 (file: 2)"),
        ({"width": 24}, token_file, "0 missing, 0 unused, 37 of a different shape", "width=24 (file: 48)"),
        # The number of heads is in the shape of the queries, (D, K, d), which are never reshaped silently.
        ({"num_heads": 4}, token_file, "0 missing, 0 unused, 14 of a different shape", "num_heads=4 (file: 3)"),
        ({"pooling": "gap"}, token_file, "0 missing, 1 unused, 1 of a different shape", "(1, 17, 48)"),
        ({}, gap, "1 missing, 0 unused, 1 of a different shape", "cls"),
    ]
    for arguments, file, count, hint in cases:
        with pytest.raises(ValueError) as error:
            load_weights(build(**arguments), file)
        assert count in str(error.value) and hint in str(error.value)
    assert keras_vit.load(token_file, pooling="gap").prefix_tokens == 1


def test_another_gelu_warns(token_file):
    with pytest.warns(UserWarning, match="gelu='tanh', but .* gelu='erf'"):
        load_weights(build(gelu="erf"), token_file)
