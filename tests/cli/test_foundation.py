"""Foundation models from the files of their projects through the commands: CLIP, SigLIP, DINOv2 with SwiGLU."""

import numpy as np
import pytest
from goldens import foundation_folder, golden_io
from images_on_disk import jpeg
from loaded_signatures import load

import keras_vit

pytestmark = pytest.mark.slow

SOURCES = {
    "hf_clip": "Hugging Face transformers' CLIP and SigLIP",
    "hf_siglip": "Hugging Face transformers' CLIP and SigLIP",
    "hf_dinov2_g": "Hugging Face transformers' DINOv2",
    "openai_clip": "open_clip",
}


@pytest.fixture
def weights(name, tmp_path):
    (tmp_path / "published").mkdir()
    return foundation_folder(tmp_path / "published", name)


@pytest.mark.parametrize("name", SOURCES)
def test_describe_convert_and_inspect(name, weights, tmp_path, run_cli):
    status, output, _ = run_cli("describe", weights)
    assert status == 0 and SOURCES[name] in output
    assert run_cli("convert", weights, tmp_path / "converted.keras")[0] == 0
    io, model = golden_io(name), keras_vit.load(tmp_path / "converted.keras")
    side = model.image_size[0]
    np.testing.assert_allclose(model(io["images"][:, :side, :side]), io["outputs"], atol=1e-4)
    (tmp_path / "1.jpg").write_bytes(jpeg(100))
    report = tmp_path / "report.html"
    assert run_cli("inspect", weights, "--images", tmp_path / "1.jpg", "--output", report)[0] == 0
    assert report.stat().st_size > 10_000


@pytest.mark.parametrize("name", ["hf_clip"])
def test_projections_are_no_classes(weights, tmp_path, run_cli):
    (tmp_path / "1.jpg").write_bytes(jpeg(100))
    (tmp_path / "names.txt").write_text("\n".join("abcdefghij"))
    output = ["--output", tmp_path / "exported"]
    for arguments in (
        ["classify", tmp_path / "1.jpg", "--model", weights],
        ["evaluate", weights, "--dataset", "digits"],
        ["export", weights, "--formats", "float32", "saved-model", *output],
        ["export", weights, "--formats", "web", *output],
        ["export", weights, "--formats", "onnx", "--class-names", tmp_path / "names.txt", *output],
    ):
        status, _, errors = run_cli(*arguments)
        assert status == 1 and "its head is a projection" in errors
    assert run_cli("export", weights, "--formats", "float32", "saved-model", "--signatures", "embed", *output)[0] == 0
    described = run_cli("export", tmp_path / "exported" / "embed-float32.tflite", "--describe")[1]
    assert "in the space that images share with texts" in described and "ImageEmbedder" in described
    loaded = load(tmp_path / "exported" / "saved_model")
    assert set(loaded) == {"serving_default", "projection", "features", "attention", "serve_bytes", "serve_uint8"}
    vit, pixels = keras_vit.load(weights), np.full((1, 40, 30, 3), 90, "uint8")
    expected = vit(vit.preprocess(pixels))
    np.testing.assert_allclose(loaded["serve_uint8"](pixels)["projection"], expected, atol=1e-4)
    np.testing.assert_allclose(loaded["serving_default"](vit.preprocess(pixels))["projection"], expected, atol=1e-4)
