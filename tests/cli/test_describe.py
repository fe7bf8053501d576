import json
from dataclasses import asdict
from pathlib import Path

import pytest
from goldens import golden_file

import keras_vit
from keras_vit.weights.checkpoint import description


def test_text(run_cli, tmp_path):
    status, output, _ = run_cli("describe", golden_file(tmp_path, "vit_jax_prelogits"))
    lines = {line.split()[0]: line.split(maxsplit=1)[1] for line in output.splitlines() if " " in line.strip()}
    assert status == 0 and lines["source"] == "google-research/vision_transformer"
    assert (lines["num_classes"], lines["gelu"], lines["epsilon"]) == ("21", "tanh", "1e-06")
    assert lines["image_size"] == "(64, 64)" and lines["class_names"] == "not in the file"
    names = [line.split()[0] for line in output.splitlines()]
    assert len(set(names)) == len(names)
    without_size = golden_file(tmp_path, "big_vision_gap_sincos2d")
    assert "\nimage_size    not in the file\n" in run_cli("describe", without_size)[1]


def test_class_names(run_cli, tmp_path, toy):
    weights = golden_file(tmp_path, "vit_jax_prelogits")
    Path(f"{weights}.labels.txt").write_text("".join(f"class {i}\n" for i in range(21)))
    assert (
        "\nclass_names   class 0, class 1, class 2, class 3, class 4 and 16 more\n" in run_cli("describe", weights)[1]
    )
    arguments = asdict(toy(num_classes=1000).config)
    names = description("timm", "VisionTransformer", arguments, {}, 1)["class_names"]
    assert names == "not in the file; ImageNet's are used"


@pytest.mark.parametrize("golden", ["hf_deit", "timm_layerscale_reg", "big_vision_map", "big_vision_bit_paper"])
def test_json(golden, run_cli, tmp_path):
    status, output, _ = run_cli("describe", golden_file(tmp_path, golden), "--json")
    found = json.loads(output)
    assert status == 0 and found["num_classes"] == 10
    expected = {"hf_deit": "Hugging Face transformers", "timm_layerscale_reg": "timm"}
    assert found["source"].startswith(expected.get(golden, "google-research/big_vision"))
    assert found["architecture"] == ("BiT" if "bit_" in golden else "VisionTransformer")
    assert found["preprocessing"]["crop_fraction"] in (1.0, 0.875, 0.9)


@pytest.mark.slow
def test_keras_file(run_cli, tmp_path):
    keras_vit.ViT_Ti16(image_size=32, num_classes=3).save(tmp_path / "x.keras")
    status, output, _ = run_cli("describe", tmp_path / "x.keras", "--json")
    found = json.loads(output)
    assert status == 0 and found["variant"] == "Ti/16" and found["source"] == "keras_vit"
    assert found["image_size"] == [32, 32] and found["preprocessing"]["mean"] == [0.5] * 3


@pytest.mark.parametrize("image_size,text", [(None, "any"), (16, "(16, 16)")])
def test_keras_file_of_a_resnet(run_cli, tmp_path, image_size, text):
    keras_vit.BiT(stages=(1,), width_factor=0.5, image_size=image_size).save(tmp_path / "bit.keras")
    status, output, _ = run_cli("describe", tmp_path / "bit.keras")
    assert status == 0 and f"\nimage_size    {text}\n" in output
    assert "\nvariant       custom\n" in output and "\ngelu          n/a\n" in output


def test_errors(run_cli, tmp_path):
    (tmp_path / "damaged.npz").write_text("x")
    for weights, message in [
        (tmp_path / "no.npz", "There is no weights file"),
        (tmp_path / "damaged.npz", "damaged.npz cannot be read as an .npz file"),
        ("vit/imagenet21k/ViT-B_17", "Unknown published checkpoint"),
    ]:
        status, output, errors = run_cli("describe", weights)
        assert status == 1 and not output and errors.startswith("keras-vit: ") and message in errors
