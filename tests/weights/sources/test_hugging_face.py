"""Folders of transformers: old and new names, shards, pooler, DeiT, config.json and preprocessor_config.json."""

import json
import re

import numpy as np
import pytest
from goldens import golden_io, golden_weights, write_arrays

import keras_vit
from keras_vit.weights import open_checkpoint
from keras_vit.weights.sources.hugging_face import preprocessing_fields

OLD_SPELLINGS = {
    r"\.layers\.(\d+)\.attention\.o_proj\.": r".encoder.layer.\1.attention.output.dense.",
    r"\.layers\.(\d+)\.attention\.q_proj\.": r".encoder.layer.\1.attention.attention.query.",
    r"\.layers\.(\d+)\.attention\.k_proj\.": r".encoder.layer.\1.attention.attention.key.",
    r"\.layers\.(\d+)\.attention\.v_proj\.": r".encoder.layer.\1.attention.attention.value.",
    r"\.layers\.(\d+)\.mlp\.fc1\.": r".encoder.layer.\1.intermediate.dense.",
    r"\.layers\.(\d+)\.mlp\.fc2\.": r".encoder.layer.\1.output.dense.",
    r"\.layers\.": ".encoder.layer.",
}


def hugging_face(folder, arrays, config=None):
    folder.mkdir(exist_ok=True)
    write_arrays(folder / "model.safetensors", arrays)
    (folder / "config.json").write_text(json.dumps({"num_attention_heads": 3, "image_size": 64, **(config or {})}))
    return folder


def old_names(arrays):
    def rename(name):
        for pattern, replacement in OLD_SPELLINGS.items():
            name = re.sub(pattern, replacement, name)
        return name

    return {rename(name): x for name, x in arrays.items()}


@pytest.mark.parametrize("golden", ["hf_vit", "hf_deit"])
def test_old_names_and_names_without_prefix(golden, tmp_path):
    io, new = golden_io(golden), golden_weights(golden)
    old = old_names(new)
    assert any(".encoder.layer.1.attention.attention.value.weight" in name for name in old)
    for i, arrays in enumerate((old, {re.sub(r"^(vit|deit)\.", "", name): x for name, x in old.items()}, new)):
        model = keras_vit.load(hugging_face(tmp_path / str(i), arrays))
        np.testing.assert_allclose(model(io["images"]), io["logits"], atol=1e-4)


def test_models_without_biases_of_queries_keys_and_values(tmp_path):
    """`qkv_bias` of config.json is false: as the file with biases of zeros."""
    arrays, images = golden_weights("hf_vit"), golden_io("hf_vit")["images"]
    is_bias = re.compile(r"\.(query|key|value|q_proj|k_proj|v_proj)\.bias$").search
    zero = {name: np.zeros_like(x) if is_bias(name) else x for name, x in arrays.items()}
    without = {name: x for name, x in arrays.items() if not is_bias(name)}
    assert len(without) < len(arrays)
    expected = keras_vit.load(hugging_face(tmp_path / "zero", zero))(images)
    found = keras_vit.load(hugging_face(tmp_path / "without", without, {"qkv_bias": False}))(images)
    np.testing.assert_array_equal(found, expected)


def test_sharded_file(tmp_path):
    arrays = golden_weights("hf_vit")
    shards = {name: f"model-0000{i % 3 + 1}-of-00003.safetensors" for i, name in enumerate(arrays)}
    for shard in set(shards.values()):
        write_arrays(tmp_path / shard, {name: x for name, x in arrays.items() if shards[name] == shard})
    (tmp_path / "model.safetensors.index.json").write_text(json.dumps({"metadata": {}, "weight_map": shards}))
    io = golden_io("hf_vit")
    np.testing.assert_allclose(keras_vit.load(tmp_path, num_heads=3)(io["images"]), io["logits"], atol=1e-4)


def test_pooler_becomes_the_hidden_layer(tmp_path):
    arrays, io = golden_weights("hf_vit"), golden_io("hf_vit")
    kernel, bias = np.random.default_rng(0).standard_normal((48, 48)).astype("float32") / 7, np.ones(48, "float32")
    whole = keras_vit.load(hugging_face(tmp_path / "whole", arrays))
    expected = np.tanh(np.asarray(whole.features(io["images"])) @ kernel.T + bias)
    body = {name.removeprefix("vit."): x for name, x in arrays.items() if "classifier" not in name}
    folder = hugging_face(tmp_path / "body", body | {"pooler.dense.weight": kernel, "pooler.dense.bias": bias})
    np.testing.assert_allclose(keras_vit.load(folder)(io["images"]), expected, atol=1e-5)


def test_deit_with_one_head_has_a_register(tmp_path):
    arrays = {n.replace("cls_", "") if "classifier" in n else n: x for n, x in golden_weights("hf_deit").items()}
    one_head = {name: x for name, x in arrays.items() if "distillation_classifier" not in name}
    model, io = keras_vit.load(hugging_face(tmp_path, one_head)), golden_io("hf_deit")
    assert model.config.register_tokens == 1 and not model.config.distillation
    np.testing.assert_allclose(model(io["images"]), io["cls_logits"], atol=1e-4)


def test_decoder_of_a_masked_autoencoder_is_omitted(tmp_path):
    arrays, io = golden_weights("hf_vit_mae"), golden_io("hf_vit_mae")
    positions = {"decoder.decoder_pos_embed": np.zeros((1, 17, 16), "float32")}
    config = {"image_size": 32, "model_type": "vit_mae"}
    pretraining = hugging_face(tmp_path / "pretraining", arrays | positions, config)
    encoder = {name.removeprefix("vit."): x for name, x in arrays.items() if name.startswith("vit.")}
    for folder in (pretraining, hugging_face(tmp_path / "encoder", encoder, {"image_size": 32})):
        model = keras_vit.load(folder)
        assert model.num_classes == 0 and model.config.pooling == "token"
        np.testing.assert_allclose(model(io["images"]), io["outputs"], atol=1e-4)
    tuned = keras_vit.load(pretraining, num_classes=7, pooling="gap", image_size=48)
    assert tuned.config.class_token and tuned.grid == (6, 6)


def test_unknown_interpolation_warns(tmp_path):
    folder, io = hugging_face(tmp_path, golden_weights("hf_vit")), golden_io("hf_vit")
    (folder / "preprocessor_config.json").write_text(json.dumps({"resample": 4, "image_mean": [0.4] * 3}))
    given = keras_vit.Preprocessing((32, 32), interpolation="lanczos3")
    for arguments, interpolation in (({}, "bilinear"), ({"preprocessing": given}, "lanczos3")):
        with pytest.warns(UserWarning, match="resample=4"):
            model = keras_vit.load(folder, **arguments)
        np.testing.assert_allclose(model(io["images"]), io["logits"], atol=1e-4)
        assert model.preprocessing.interpolation == interpolation


def test_arguments_and_preprocessing_from_config(tmp_path):
    config = {"hidden_act": "gelu_new", "layer_norm_eps": 1e-6, "image_size": [64, 64]}
    folder = hugging_face(tmp_path, golden_weights("hf_vit"), config)
    content = {"image_mean": [0.4] * 3, "image_std": [0.2] * 3, "resample": 3, "size": 80, "crop_size": 64}
    (folder / "preprocessor_config.json").write_text(json.dumps(content | {"do_center_crop": True}))
    found = keras_vit.load(folder).config
    assert (found.gelu, found.epsilon, found.image_size) == ("tanh", 1e-6, (64, 64))
    images = found.preprocessing
    assert (images.mean, images.std, images.interpolation) == ((0.4,) * 3, (0.2,) * 3, "bicubic")
    assert images.crop_fraction == 0.8 and images.resize == "squash" and images.antialias
    (folder / "preprocessor_config.json").unlink()
    nested = {"image_processor": content | {"do_center_crop": True}, "processor_class": "CLIPProcessor"}
    (folder / "processor_config.json").write_text(json.dumps(nested))  # of transformers 5
    assert keras_vit.load(folder).preprocessing == images and images.origin == "file"


@pytest.mark.parametrize("golden", ["hf_vit", "hf_dinov2", "hf_siglip"])
def test_problem_type_of_config(golden, tmp_path):
    """transformers computes no softmax of the outputs of a regression, and sigmoids of those of several labels."""
    arrays, config = golden_weights(golden), {"num_attention_heads": 3}
    if golden != "hf_vit":
        arrays |= {"classifier.weight": np.ones((2, {"hf_dinov2": 48}.get(golden, 24)), "float32")}
        arrays |= {"classifier.bias": np.zeros(2, "float32")}
    for kind, answer in (
        ("regression", (False, True)),
        ("multi_label_classification", (True, False)),
        (None, (False, False)),
    ):
        folder = hugging_face(tmp_path, arrays, config | {"problem_type": kind, "id2label": {"0": "a", "1": "b"}})
        found = open_checkpoint(folder).arguments
        assert (found["multi_label"], found["projection"]) == answer
        if kind == "regression":
            assert found["class_names"] is None


def test_fields_of_preprocessor_config():
    cases = [
        ({}, {}),
        ({"size": 224, "image_mean": [0.5] * 3, "image_std": [0.5] * 3}, {"mean": (0.5,) * 3, "std": (0.5,) * 3}),
        ({"do_normalize": False}, {"mean": (0.0,) * 3, "std": (1.0,) * 3}),
        ({"resample": 3, "image_mean": None, "image_std": None}, {"interpolation": "bicubic"}),
        ({"do_center_crop": True, "size": 256, "crop_size": 224}, {"crop_fraction": 0.875}),
        ({"image_mean": 0.5, "image_std": 0.25}, {"mean": (0.5,) * 3, "std": (0.25,) * 3}),
        ({"size": {"shortest_edge": 8}, "crop_size": {"height": 9, "width": 6}}, {"resize": "shortest"}),
    ]
    for config, fields in cases:
        assert preprocessing_fields(config) == fields
    with pytest.warns(UserWarning, match="resample=4"):
        assert preprocessing_fields({"resample": 4, "size": {"shortest_edge": 8}}) == {"resize": "shortest"}
    # Without rescaling, mean and standard deviation are of pixels in [0, 255].
    config = {"do_rescale": False, "image_mean": [102.0] * 3, "image_std": [51.0] * 3}
    np.testing.assert_allclose(
        keras_vit.Preprocessing(2, **preprocessing_fields(config))(np.full((2, 2, 3), 153, "uint8")), 1, atol=1e-6
    )
