"""Foundation models from the files of their projects through the commands: CLIP, SigLIP, DINOv2 with SwiGLU."""

import numpy as np
import pytest
from ai_edge_litert.interpreter import Interpreter
from goldens import foundation_folder, golden_io
from images_on_disk import jpeg
from loaded_signatures import load

import keras_vit
from keras_vit_cli.main import main

pytestmark = pytest.mark.slow

SOURCES = {
    "hf_clip": "Hugging Face transformers' CLIP and SigLIP",
    "hf_siglip": "Hugging Face transformers' CLIP and SigLIP",
    "hf_dinov2_g": "Hugging Face transformers' DINOv2",
    "openai_clip": "open_clip",
}


@pytest.fixture(params=SOURCES)
def name(request):
    return request.param


@pytest.fixture
def weights(name, tmp_path):
    folder = tmp_path / "published"
    folder.mkdir()
    return foundation_folder(folder, name)


def test_describe_convert_and_inspect(name, weights, tmp_path, capsys):
    assert main(["describe", str(weights)]) == 0
    assert SOURCES[name] in capsys.readouterr().out
    assert main(["convert", str(weights), str(tmp_path / "converted.keras")]) == 0
    io = golden_io(name)
    model = keras_vit.load(tmp_path / "converted.keras")
    side = model.image_size[0]
    np.testing.assert_allclose(model(io["images"][:, :side, :side]), io["outputs"], atol=1e-4)
    (tmp_path / "images").mkdir()
    (tmp_path / "images" / "1.jpg").write_bytes(jpeg(100))
    report = tmp_path / "report.html"
    assert main(["inspect", str(weights), "--images", str(tmp_path / "images"), "--output", str(report)]) == 0
    assert report.stat().st_size > 10_000


def test_features_are_evaluated(weights, data_dir, capsys):
    data = ["digits", "--data-dir", data_dir, "--train-split", "train[:100]", "--test-split", "test[:20]"]
    assert main(["few-shot", str(weights), *data, "--shots", "2", "--seeds", "0"]) == 0
    width = keras_vit.load(weights).features(np.zeros((1, 28, 28, 3), "float32")).shape[1]
    assert f"100 training and 20 test images of digits, {width} features" in capsys.readouterr().out
    assert main(["probe", str(weights), *data, "--neighbors", "1"]) == 0
    assert "linear:" in capsys.readouterr().out


@pytest.mark.parametrize("name", ["hf_clip", "openai_clip"])
def test_projections_are_no_classes(weights, tmp_path, capsys):
    (tmp_path / "1.jpg").write_bytes(jpeg(100))
    (tmp_path / "names.txt").write_text("\n".join("abcdefghij"))
    model, output = str(weights), ["--output", str(tmp_path / "exported")]
    for arguments in (
        ["classify", str(tmp_path / "1.jpg"), "--model", model],
        ["evaluate", model, "--dataset", "digits"],
        ["export", model, "--formats", "float32", "saved-model", *output],
        ["export", model, "--formats", "web", *output],
        ["export", model, "--formats", "onnx", "--class-names", str(tmp_path / "names.txt"), *output],
    ):
        assert main(arguments) == 1
        assert "knows no classes: its head is a projection" in capsys.readouterr().err
    assert main(["export", model, "--formats", "float32", "saved-model", "--signatures", "embed", *output]) == 0
    capsys.readouterr()
    assert main(["export", str(tmp_path / "exported" / "embed-float32.tflite"), "--describe"]) == 0
    text = capsys.readouterr().out
    assert "in the space that images share with texts" in text and "supported by ImageEmbedder" in text
    loaded = load(tmp_path / "exported" / "saved_model")
    assert set(loaded) == {"serving_default", "projection", "features", "attention", "serve_bytes", "serve_uint8"}
    vit, pixels = keras_vit.load(weights), np.full((1, 40, 30, 3), 90, "uint8")
    expected = vit(vit.preprocess(pixels))
    np.testing.assert_allclose(loaded["serve_uint8"](pixels)["projection"], expected, atol=1e-4)
    np.testing.assert_allclose(loaded["serving_default"](vit.preprocess(pixels))["projection"], expected, atol=1e-4)


def test_embeddings_are_exported(weights, tmp_path):
    output = ["--signatures", "embed", "--output", str(tmp_path / "exported")]
    assert main(["export", str(weights), "--formats", "float32", *output]) == 0
    model = keras_vit.load(weights)
    images = np.random.default_rng(0).integers(0, 256, (1, *model.image_size, 3)).astype("float32")
    (file,) = (tmp_path / "exported").glob("*.tflite")
    run = Interpreter(str(file)).get_signature_runner("embed")
    (name,) = run.get_input_details()
    (found,) = run(**{name: images}).values()
    inputs = model.preprocess(images)
    expected = model(inputs) if model.config.projection else model.features(inputs)
    np.testing.assert_allclose(found, expected, atol=1e-4 * np.abs(expected).max())
