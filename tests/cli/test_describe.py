import json
from dataclasses import asdict
from pathlib import Path

import numpy as np
import pytest
from goldens import golden_file
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
