"""Folders of transformers: old and new names, parts, pooler, DeiT, and what the descriptions beside say."""

import json
import re

import numpy as np
import pytest
from goldens import golden_io, golden_weights, write_arrays

import keras_vit

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


def test_a_file_in_parts(tmp_path):
    arrays = golden_weights("hf_vit")
    parts = {name: f"model-0000{i % 3 + 1}-of-00003.safetensors" for i, name in enumerate(arrays)}
    for part in set(parts.values()):
        write_arrays(tmp_path / part, {name: x for name, x in arrays.items() if parts[name] == part})
    (tmp_path / "model.safetensors.index.json").write_text(json.dumps({"metadata": {}, "weight_map": parts}))
    io = golden_io("hf_vit")
    np.testing.assert_allclose(keras_vit.load(tmp_path, num_heads=3)(io["images"]), io["logits"], atol=1e-4)


def test_the_pooler_is_the_papers_hidden_layer(tmp_path):
    arrays, io = golden_weights("hf_vit"), golden_io("hf_vit")
    kernel, bias = np.random.default_rng(0).standard_normal((48, 48)).astype("float32") / 7, np.ones(48, "float32")
    whole = keras_vit.load(hugging_face(tmp_path / "whole", arrays))
    expected = np.tanh(np.asarray(whole.features(io["images"])) @ kernel.T + bias)
    body = {name.removeprefix("vit."): x for name, x in arrays.items() if "classifier" not in name}
    folder = hugging_face(tmp_path / "body", body | {"pooler.dense.weight": kernel, "pooler.dense.bias": bias})
    np.testing.assert_allclose(keras_vit.load(folder)(io["images"]), expected, atol=1e-5)


def test_a_deit_of_one_head_keeps_its_token_as_a_register(tmp_path):
    arrays = {n.replace("cls_", "") if "classifier" in n else n: x for n, x in golden_weights("hf_deit").items()}
    one_head = {name: x for name, x in arrays.items() if "distillation_classifier" not in name}
    model, io = keras_vit.load(hugging_face(tmp_path, one_head)), golden_io("hf_deit")
    assert model.arguments["register_tokens"] == 1 and not model.arguments["distillation"]
    np.testing.assert_allclose(model(io["images"]), io["cls_logits"], atol=1e-4)


def test_a_filter_that_there_is_not_keeps_no_one_from_the_weights(tmp_path):
    folder, io = hugging_face(tmp_path, golden_weights("hf_vit")), golden_io("hf_vit")
    (folder / "preprocessor_config.json").write_text(json.dumps({"resample": 4, "image_mean": [0.4] * 3}))
    given = keras_vit.Preprocessing((32, 32), interpolation="lanczos3")
    for arguments, interpolation in (({}, "bilinear"), ({"preprocessing": given}, "lanczos3")):
        with pytest.warns(UserWarning, match="resample=4. .*resized bilinearly unless you say preprocessing="):
            model = keras_vit.load(folder, **arguments)
        np.testing.assert_allclose(model(io["images"]), io["logits"], atol=1e-4)
        assert model.preprocessing.interpolation == interpolation


def test_config_says_what_the_arrays_do_not(tmp_path):
    config = {"hidden_act": "gelu_new", "layer_norm_eps": 1e-6, "image_size": [64, 64]}
    folder = hugging_face(tmp_path, golden_weights("hf_vit"), config)
    content = {"image_mean": [0.4] * 3, "image_std": [0.2] * 3, "resample": 3, "size": 80, "crop_size": 64}
    (folder / "preprocessor_config.json").write_text(json.dumps(content | {"do_center_crop": True}))
    arguments = keras_vit.load(folder).arguments
    assert (arguments["gelu"], arguments["epsilon"], arguments["image_size"]) == ("tanh", 1e-6, (64, 64))
    images = arguments["preprocessing"]
    assert (images["mean"], images["std"], images["interpolation"]) == ((0.4,) * 3, (0.2,) * 3, "bicubic")
    assert images["crop_fraction"] == 0.8 and images["resize"] == "squash" and images["antialias"]
