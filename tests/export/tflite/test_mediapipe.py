"""MediaPipe Tasks on files of `with_metadata`, compared with Keras on the same JPEG files."""

import json
import subprocess
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import tensorflow as tf
from ai_edge_litert.interpreter import Interpreter
from pixel_models import CLASSES, SIZE, converted, random_classifier, signature_functions
from scenes import encoded, opened, scene

from keras_vit.export.tflite.description import Description
from keras_vit.export.tflite.metadata import with_metadata

pytestmark = pytest.mark.slow

ROOT = Path(__file__).parents[3]
PYTHON = ROOT / ".venv-mediapipe" / "bin" / "python"
CLIENT = Path(__file__).with_name("mediapipe_client.py")
NAMES = tuple(f"object {i}" for i in range(CLASSES))
ABOUT = Description("ViT", "Ten objects.", "1.0", "An author", "Apache-2.0", NAMES)
# MediaPipe and Pillow differ by up to LEVELS of 255 when they decode and resize a JPEG file, which changes
# probabilities by up to TOLERANCE. On the pixels that MediaPipe fed the model, Keras agrees to SAME_PIXELS.
LEVELS, TOLERANCE, SAME_PIXELS = 4, 0.01, 1e-4


def client(*arguments, fails=False):
    """Output of the client; with `fails`, the last line of its standard error."""
    if not PYTHON.exists():
        pytest.fail(f"{PYTHON} is missing. make test sets it up: make .venv-mediapipe/ready", pytrace=False)
    done = subprocess.run([PYTHON, CLIENT, *map(str, arguments)], capture_output=True, text=True, timeout=300)
    if not fails and done.returncode:
        pytest.fail(f"MediaPipe: {done.stderr.strip()[-1500:]}", pytrace=False)
    assert bool(done.returncode) == fails
    return done.stderr.strip().splitlines()[-1] if fails else json.loads(done.stdout)


@pytest.fixture(scope="module")
def model():
    return random_classifier()


@pytest.fixture(scope="module")
def images(tmp_path_factory):
    """JPEG files: four of the model's size, two larger ones with other aspect ratios."""
    folder, (height, width) = tmp_path_factory.mktemp("images"), SIZE
    sizes = [(width, height)] * 4 + [(83, 70), (120, 64)]
    files = [folder / f"{number}.jpg" for number in range(len(sizes))]
    for number, (file, size) in enumerate(zip(files, sizes)):
        file.write_bytes(encoded(scene(number, size), quality=95))
    return files


def resized(file):
    """An image resized as MediaPipe does, (1, H, W, 3) float32 in [0, 255]: bilinear, not antialiased, corners aligned.

    Pixel x of the model is sampled at x * (width of the image) / (width of the model); tf.image.resize aligns centers.
    """
    image = np.asarray(opened(file.read_bytes()), "float32")
    rows, columns = (np.arange(size) * side / size for size, side in zip(SIZE, image.shape))
    top, left = rows.astype(int), columns.astype(int)
    down, right = (rows - top)[:, None, None], (columns - left)[:, None]
    bottom, last = np.minimum(top + 1, image.shape[0] - 1), np.minimum(left + 1, image.shape[1] - 1)
    upper = image[top][:, left] * (1 - right) + image[top][:, last] * right
    lower = image[bottom][:, left] * (1 - right) + image[bottom][:, last] * right
    return np.round(upper * (1 - down) + lower * down)[None].astype("float32")


@pytest.fixture(scope="module")
def fed(model, images, tmp_path_factory):
    """Pixels that MediaPipe feeds for each file, (n, H, W, 3): the embedding of a model that returns its input."""
    folder = tmp_path_factory.mktemp("echo")
    content = converted(model, {"embed": lambda images: {"embedding": tf.reshape(images, (1, -1))}}, folder / "saved")
    (folder / "echo.tflite").write_bytes(with_metadata(content, Description("echo")))
    return np.array(client("embed", folder / "echo.tflite", *images), "float32").reshape(-1, *SIZE, 3)


@pytest.fixture(scope="module")
def classify(model, tmp_path_factory):
    """A float32 file with "classify" only, without metadata."""
    return converted(model, {"classify": signature_functions(model)["classify"]}, tmp_path_factory.mktemp("classify"))


def assert_same_top_5(found, expected, tolerance):
    """`found`: [name, score] pairs, best first; `expected`: (num_classes,) probabilities."""
    by_name = dict(zip(NAMES, expected.tolist()))
    assert len(found) == 5
    best = sorted(by_name, key=by_name.get, reverse=True)
    for rank, (name, score) in enumerate(found):
        assert score == pytest.approx(by_name[name], abs=tolerance)
        # Another class at this rank only if its probability is nearly the same.
        assert name == best[rank] or abs(by_name[name] - by_name[best[rank]]) < 2 * tolerance


def assert_classifies_as_keras(model, content, images, path, fed=None):
    path.write_bytes(content)
    found, run = client("classify", path, *images), signature_functions(model)["classify"]
    assert len({tuple(name for name, _ in top) for top in found}) > 3  # the images differ
    for number, (file, top) in enumerate(zip(images, found)):
        assert_same_top_5(top, run(resized(file))["probabilities"][0].numpy(), TOLERANCE)
        if fed is not None:
            assert_same_top_5(top, run(fed[number][None])["probabilities"][0].numpy(), SAME_PIXELS)


def test_classifier_equals_keras(model, classify, images, tmp_path):
    assert_classifies_as_keras(model, with_metadata(classify, ABOUT), images, tmp_path / "model.tflite")


@pytest.mark.extended
@pytest.mark.parametrize("scaling", ["in the model", "by MediaPipe"])
def test_classifier_equals_keras_on_the_same_pixels(model, classify, images, fed, tmp_path, scaling):
    """Pixels in [0, 255] as in files of `write_tflite`, or scaled by MediaPipe to [-1, 1] as the metadata specifies."""
    for number, (file, pixels) in enumerate(zip(images, fed)):  # MediaPipe resizes without cropping
        difference = np.abs(pixels - resized(file)[0])
        assert difference.max() <= LEVELS and difference.mean() < 0.25
        assert number >= 4 or np.array_equal(resized(file)[0], np.asarray(opened(file.read_bytes())))
    content = with_metadata(classify, ABOUT)
    if scaling == "by MediaPipe":
        scaled = {"classify": lambda images: {"probabilities": tf.nn.softmax(model(images, training=False))}}
        content = converted(model, scaled, tmp_path / "saved_model")
        content = with_metadata(content, replace(ABOUT, mean=127.5, std=127.5))
    assert_classifies_as_keras(model, content, images, tmp_path / "model.tflite", fed)


@pytest.mark.extended
def test_uint8_classifier_equals_litert(model, images, fed, tmp_path):
    """The same file on the same pixels."""
    path = tmp_path / "uint8.tflite"
    functions = {"classify": signature_functions(model)["classify"]}
    random = np.random.default_rng(0)
    calibration = np.concatenate([fed] * 4 + [random.integers(0, 256, (4, *SIZE, 3))]).astype("float32")
    calibration[0, 0, 0], calibration[0, 0, 1] = 0, 255
    path.write_bytes(with_metadata(converted(model, functions, tmp_path / "saved_model", calibration), ABOUT))
    run = Interpreter(model_path=str(path)).get_signature_runner("classify")
    assert run.get_input_details()["images"]["dtype"] == np.uint8
    scale, zero_point = run.get_output_details()["probabilities"]["quantization"]
    for pixels, top in zip(fed, client("classify", path, *images)):
        stored = run(images=pixels[None].astype("uint8"))["probabilities"][0]
        assert_same_top_5(top, (stored.astype("float32") - zero_point) * scale, SAME_PIXELS)


@pytest.mark.extended
def test_embedder_equals_keras(model, images, fed, tmp_path):
    path, functions = tmp_path / "embed.tflite", {"embed": signature_functions(model)["embed"]}
    content = converted(model, functions, tmp_path / "saved_model")
    path.write_bytes(with_metadata(content, replace(ABOUT, class_names=None)))
    found = np.array(client("embed", path, *images))
    expected = np.concatenate([functions["embed"](pixels[None])["embedding"].numpy() for pixels in fed])
    assert found.shape == expected.shape == (6, 32)
    assert np.abs(found - expected).max() < 1e-4 * np.abs(expected).max()
    decoded = np.concatenate([functions["embed"](resized(file))["embedding"].numpy() for file in images])
    cosines = found @ decoded.T / np.linalg.norm(found, axis=1)[:, None] / np.linalg.norm(decoded, axis=1)
    assert (np.diag(cosines) > 0.999).all() and (cosines.argmax(1) == np.arange(6)).all()


@pytest.mark.extended
def test_mediapipe_reads_every_field(classify, tmp_path):
    path = tmp_path / "model.tflite"
    path.write_bytes(with_metadata(classify, replace(ABOUT, mean=(1, 2, 3), std=(4, 5, 6))))
    found = client("metadata", path)
    texts = {"name": "ViT", "description": "Ten objects.", "version": "1.0", "author": "An author"}
    assert found.items() >= {**texts, "license": "Apache-2.0", "minParserVersion": "1.0.0"}.items()
    assert [file["name"] for file in found["associatedFiles"]] == ["preprocessing.json"]
    (subgraph,) = found["subgraphMetadata"]
    (image,), (result,) = subgraph["inputTensorMetadata"], subgraph["outputTensorMetadata"]
    assert (image["name"], result["name"]) == ("images", "probabilities")
    properties = {"colorSpace": 1, "defaultSize": {"width": SIZE[1], "height": SIZE[0]}}  # 1: RGB
    assert image["content"] == {"contentPropertiesType": 2, "contentProperties": properties}  # 2: ImageProperties
    # 1: NormalizationOptions
    assert image["processUnits"] == [{"optionsType": 1, "options": {"mean": [1, 2, 3], "std": [4, 5, 6]}}]
    assert image["stats"]["min"] == pytest.approx([-1 / 4, -2 / 5, -3 / 6])
    assert image["stats"]["max"] == pytest.approx([254 / 4, 253 / 5, 252 / 6])
    assert result["stats"] == {"min": [0], "max": [1]} and result["content"]["contentPropertiesType"] == 1
    (file,) = result["associatedFiles"]
    assert (file["name"], file["type"]) == ("labels.txt", 2)  # TENSOR_AXIS_LABELS


@pytest.mark.extended
def test_mediapipe_problem_is_real(model, classify, images, tmp_path):
    """MediaPipe refuses the files for which `mediapipe_problem` warns."""
    path, about = tmp_path / "model.tflite", replace(ABOUT, mean=(1, 2, 3), std=(4, 5, 6))
    contents = {
        "single subgraph": with_metadata(converted(model, signature_functions(model), tmp_path / "two"), ABOUT),
        "Per-channel image normalization": with_metadata(classify, about),
        "NormalizationOptions": classify,
    }
    for message, content in contents.items():
        path.write_bytes(content)
        assert message in client("classify", path, images[0], fails=True)
