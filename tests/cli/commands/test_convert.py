"""`keras-vit describe` and `convert`."""

import json
from dataclasses import asdict
from pathlib import Path

import numpy as np
import pytest
from goldens import golden_file, golden_io
from safetensors.numpy import load_file

import keras_vit
from keras_vit.weights.checkpoint import description


def test_text_and_class_names(run_cli, tmp_path, toy):
    weights = golden_file(tmp_path, "vit_jax_prelogits")
    status, output, _ = run_cli("describe", weights)
    lines = {line.split()[0]: line.split(maxsplit=1)[1] for line in output.splitlines() if " " in line.strip()}
    expected = {"source": "google-research/vision_transformer", "num_classes": "21", "gelu": "tanh", "epsilon": "1e-06"}
    expected |= {"image_size": "(64, 64)", "class_names": "not in the file"}
    assert status == 0 and lines.items() >= expected.items()
    without_size = golden_file(tmp_path, "big_vision_gap_sincos2d")
    assert "\nimage_size    not in the file\n" in run_cli("describe", without_size)[1]
    Path(f"{weights}.labels.txt").write_text("".join(f"class {i}\n" for i in range(21)))
    names = "class 0, class 1, class 2, class 3, class 4 and 16 more"
    assert f"\nclass_names   {names}\n" in run_cli("describe", weights)[1]
    arguments = asdict(toy(num_classes=1000).config)
    assert "ImageNet's" in description("timm", "VisionTransformer", arguments, {}, 1)["class_names"]


@pytest.mark.parametrize(
    "golden,source,architecture",
    [
        ("hf_deit", "Hugging Face transformers", "VisionTransformer"),
        ("timm_layerscale_reg", "timm", "VisionTransformer"),
        ("big_vision_map", "google-research/big_vision", "VisionTransformer"),
        ("big_vision_bit_paper", "google-research/big_vision", "BiT"),
    ],
)
def test_json(golden, source, architecture, run_cli, tmp_path):
    file = golden_file(tmp_path, golden)
    status, output, _ = run_cli("describe", file, "--json")
    described = json.loads(output)
    arrays = load_file(file) if file.suffix == ".safetensors" else np.load(file)
    assert described["weights"] == sum(arrays[name].size for name in arrays)
    assert status == 0 and described["num_classes"] == 10 and described["architecture"] == architecture
    assert described["source"].startswith(source)
    assert described["preprocessing"]["crop_fraction"] in (1.0, 0.875, 0.9)


@pytest.mark.slow
def test_keras_files(run_cli, tmp_path):
    keras_vit.ViT_Ti16(image_size=32, num_classes=3).save(tmp_path / "x.keras")
    status, output, _ = run_cli("describe", tmp_path / "x.keras", "--json")
    described = json.loads(output)
    assert status == 0 and (described["variant"], described["source"]) == ("Ti/16", "keras_vit")
    assert described["image_size"] == [32, 32] and described["preprocessing"]["mean"] == [0.5] * 3
    for image_size, text in ((None, "any"), (16, "(16, 16)")):
        keras_vit.BiT(stages=(1,), width_factor=0.5, image_size=image_size).save(tmp_path / "bit.keras")
        status, output, _ = run_cli("describe", tmp_path / "bit.keras")
        assert status == 0 and f"\nimage_size    {text}\n" in output
        assert "\nvariant       custom\n" in output and "\ngelu          n/a\n" in output


def test_mean_and_std_of_a_file_that_has_none(run_cli, tmp_path):
    file, values = golden_file(tmp_path, "timm_token"), ("0.4", "0.5", "0.6")
    options = ("--num-heads", 3, "--mean", *values, "--std", 0.2, 0.25, 0.3)
    status, _, notes = run_cli("convert", file, "--output", tmp_path / "x.keras", *options)
    assert status == 0 and not notes
    model = keras_vit.load(tmp_path / "x.keras")
    assert (model.preprocessing.mean, model.preprocessing.std) == ((0.4, 0.5, 0.6), (0.2, 0.25, 0.3))
    pixels = model.preprocess(np.full((64, 64, 3), 102, "uint8"))
    np.testing.assert_allclose(pixels[0, 0, 0], [0, -0.4, -2 / 3], atol=1e-5)
    io = golden_io("timm_token")
    np.testing.assert_allclose(model(io["images"]), io["logits"], atol=1e-4)
    assert "mean=(0.4, 0.5, 0.6)" in (tmp_path / "x.keras.model_card.md").read_text()


@pytest.mark.parametrize("name", ["x.keras", "x.npz", "x.safetensors"])
def test_half_precision(run_cli, tmp_path, name):
    file, io = golden_file(tmp_path, "vit_jax_token"), golden_io("vit_jax_token")
    assert run_cli("convert", file, "--output", tmp_path / "full" / name)[0] == 0
    assert run_cli("convert", file, "--output", tmp_path / name, "--dtype", "float16")[0] == 0
    assert (tmp_path / name).stat().st_size < 0.75 * (tmp_path / "full" / name).stat().st_size  # the toy has long names
    model = keras_vit.load(tmp_path / name, dtype="float32")
    assert {weight.dtype for weight in model.weights} == {"float32"}
    np.testing.assert_allclose(model(io["images"]), io["outputs"], atol=5e-3)


def test_class_names_and_cards_stay_with_each_format(run_cli, trained_toy, tmp_path):
    run, folder = tmp_path / "run", tmp_path / "converted"
    run.mkdir()
    trained_toy(num_classes=3).save(run / "model.keras")
    (run / "labels.txt").write_text("ant\nbee\ncat\n")
    for name in ("x.keras", "x.npz", "hf"):
        assert run_cli("convert", run, "--output", folder / name)[0] == 0  # formats in one folder do not collide
    files = {f"{name}{end}" for name in ("x.keras", "x.npz") for end in ("", ".model_card.md", ".labels.txt")}
    assert {file.name for file in folder.iterdir()} == files | {"hf"}
    for file in ("x.keras.labels.txt", "x.npz.labels.txt", "hf/labels.txt"):
        assert (folder / file).read_text() == "ant\nbee\ncat\n"
    config = json.loads((folder / "hf" / "config.json").read_text())
    assert config["id2label"] == {"0": "ant", "1": "bee", "2": "cat"} and config["label2id"]["cat"] == 2
    assert run_cli("convert", folder / "x.npz", "--output", tmp_path / "again.keras", "--gelu", "tanh")[0] == 0
    assert (tmp_path / "again.keras.labels.txt").read_text() == "ant\nbee\ncat\n"
    # A head of other classes has no names, and those of the replaced file are removed.
    assert run_cli("convert", run, "--output", folder / "x.npz", "--num-classes", 7, "--overwrite")[0] == 0
    assert not (folder / "x.npz.labels.txt").exists() and (run / "labels.txt").exists()


@pytest.mark.parametrize(
    "golden,output,options,word",
    [
        ("hf_vit", "y.npz", ("--num-heads", 3), "gelu='erf'"),
        ("hf_vit", "y.keras", (), "num_heads="),
        ("big_vision_bit_v1", "y.npz", (), "VisionTransformer"),
    ],
)
def test_errors_leave_no_files(run_cli, tmp_path, golden, output, options, word):
    file = golden_file(tmp_path, golden)
    before = sorted(tmp_path.iterdir())
    status, text, errors = run_cli("convert", file, "--output", tmp_path / output, *options)
    assert (status, text) == (1, "") and word in errors.splitlines()[-1] and sorted(tmp_path.iterdir()) == before
