import base64
import io
import re

import numpy as np
import pytest
from PIL import Image

from keras_vit.inspect import attention_distance, attention_rollout, figures
from keras_vit.recipes.pretraining.masked_autoencoder import MaskedAutoencoderModel
from keras_vit.recipes.pretraining.masked_patch import MaskedPatchModel

pytestmark = pytest.mark.slow

ROLLOUT, DISTANCE, POSITIONS, FILTERS, LAYERS, NEIGHBORS = (
    "Attention rollout",
    "Mean attention distance",
    "Similarity of position embeddings",
    "Patch embedding filters",
    "Similarity of layers",
    "Nearest neighbors",
)
ALL_SECTIONS = (ROLLOUT, DISTANCE, POSITIONS, FILTERS, LAYERS, NEIGHBORS)


def decode(url):
    """Pixels of an image in a data: URL."""
    return np.asarray(Image.open(io.BytesIO(base64.b64decode(url.partition(",")[2]))), int)


def test_report_of_a_classifier(run, trained_toy, folder, tmp_path):
    model = trained_toy()
    status, report, output, _ = run(model, "--num-shown", 3)
    assert status == 0 and report.headings[1:] == list(ALL_SECTIONS)
    assert report.paragraphs[0].startswith(f"Model: {tmp_path / 'x.keras'}, 16 x ")
    assert f"Inspected on 10 images of {folder}, shown" in report.paragraphs[0]
    assert "10 of 10 images" in output and "report.html" in output
    files = sorted(path for path in folder.rglob("*") if path.suffix in (".png", ".jpg"))
    names = [path.relative_to(folder).as_posix() for path in files]
    assert [image["name"] for image in report.data["images"]] == [names[i] for i in (0, 4, 9)]
    inputs = np.concatenate([model.preprocess(np.asarray(Image.open(path).convert("RGB"))) for path in files])
    distances = np.array(report.texts["td"], float).reshape(2, 3)
    np.testing.assert_allclose(distances, attention_distance(model, inputs), atol=0.006)
    predictions = [f"for class {label}" for label in np.argmax(model(inputs), axis=-1)[[0, 4, 9]]]
    captions = [caption for caption in report.captions if caption.startswith("for class")]
    assert [caption.split(",")[0] for caption in captions] == predictions

    rollouts = [decode(source) for source, caption in zip(report.sources, report.captions) if caption == "rollout"]
    for rollout, i in zip(rollouts, (0, 4, 9), strict=True):
        (heat,) = attention_rollout(model, inputs[i : i + 1])
        pixels = np.rint(127.5 * (inputs[i] + 1)).astype("uint8")
        np.testing.assert_allclose(rollout, figures.overlay(pixels, heat), atol=1)

    features = np.asarray(model.features(inputs))
    features = features / np.linalg.norm(features, axis=1, keepdims=True)
    cosines = features @ features[4]
    cosines[4] = -2  # itself
    neighbors = [f"{names[i]}, {cosines[i]:.3f}" for i in np.argsort(-cosines)[:5]]
    start = report.captions.index(names[4], report.captions.index(names[4]) + 1)  # the first is in the rollout section
    assert report.captions[start + 1 : start + 6] == neighbors
    assert all(source.startswith("data:image/") for source in report.sources)
    assert not re.search(r"(src|href)=\"?https?:|@import|url\(", report.text)


@pytest.mark.parametrize(
    "changes,omitted,prefix",
    [
        ({"axial": True, "pooling": "gap"}, (), []),
        ({"num_classes": 0, "position_embedding": "relative"}, (POSITIONS,), ["class token"]),
        ({"image_size": 32, "patch_size": 16, "resnet_stages": (1,)}, (FILTERS,), ["class token"]),
        (
            {"prefix_positions": False, "register_tokens": 1, "distillation": True},
            (),
            ["class token", "distillation token", "register 1"],
        ),
    ],
)
def test_sections_of_other_models(run, trained_toy, changes, omitted, prefix):
    status, report, _, errors = run(trained_toy(**changes), "--num-shown", 1, "--max-images", 2)
    assert status == 0, errors
    assert report.headings[1:] == [title for title in ALL_SECTIONS if title not in omitted]
    assert report.data["prefix"] == prefix and (report.data["positions"] is None) == (POSITIONS in omitted)
    assert ("along rows, then along columns" in report.text) == ("axial" in changes)
    num_tokens = len(prefix) + np.prod(report.data["grid"])
    levels = np.frombuffer(base64.b64decode(report.data["images"][0]["levels"]), "uint8")
    assert levels.size == 2 * 3 * num_tokens**2


def test_omitted_images_and_layers_are_reported(run, trained_toy):
    status, report, output, _ = run(trained_toy(depth=5), "--max-images", 4, "--max-megabytes", 0.0044)
    assert status == 0 and "1 of 4 images and 3 of 5 layers" in output and "--max-megabytes" in report.text


def test_one_image_has_no_neighbors(run, trained_toy, folder):
    status, report, output, _ = run(trained_toy(depth=1), images=folder / "class 1" / "3.jpg")
    assert status == 0 and report.headings[1:] == [ROLLOUT, DISTANCE, POSITIONS, FILTERS]
    assert f"{folder}/class 1/3.jpg" in report.paragraphs[0] and report.data["images"][0]["name"] == "3.jpg"
    assert "1 image" in output.splitlines()[1]


@pytest.mark.parametrize(
    "kind,arguments,title,caption",
    [
        (MaskedPatchModel, ("pixels",), "Masked-patch reconstructions", "corrupted"),
        (MaskedAutoencoderModel, (1, 8, 2), "Masked-autoencoder reconstructions", "visible to the encoder"),
    ],
)
def test_reconstructions(run, trained_toy, kind, arguments, title, caption):
    status, report, _, errors = run(kind(trained_toy(num_classes=0, depth=1), *arguments), "--max-images", 2)
    assert status == 0, errors
    assert report.headings[1:3] == [ROLLOUT, title]
    assert [report.captions.count(name) for name in (caption, "predicted", "target")] == [2, 2, 2]
