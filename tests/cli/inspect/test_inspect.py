"""`keras-vit inspect` without a browser: what the page contains for each kind of model, and what is refused."""

import base64
import json
import re
from dataclasses import replace
from html.parser import HTMLParser

import numpy as np
import pytest
from PIL import Image
from scenes import scene

import keras_vit
from keras_vit.cli.image_files import Images
from keras_vit.cli.inspect.attention_data import AttentionData
from keras_vit.cli.main import main
from keras_vit.inspect import attention_distance
from keras_vit.recipes.configs.digits import FINE_TUNE, MASKED_PATCH
from keras_vit.recipes.masked_patch.model import MaskedPatchModel
from keras_vit.recipes.recipe import Architecture
from keras_vit.recipes.recipe_file import write_recipe
from keras_vit.recipes.run import run as run_recipe

ROLLOUT, DISTANCE, POSITIONS, FILTERS, LAYERS, NEIGHBOURS, MASKED = (
    "Attention rollout",
    "Mean attention distance",
    "Similarity of positions",
    "Filters of the patch embedding",
    "Similarity of layers",
    "Nearest neighbors",
    "Reconstruction of masked patches",
)
EVERYTHING = (ROLLOUT, DISTANCE, POSITIONS, FILTERS, LAYERS, NEIGHBOURS)


class Page(HTMLParser):
    """Headings, tables, captions and data of a page."""

    def __init__(self, path):
        super().__init__()
        self.tag, self.attributes, self.sources = "", {}, []
        self.headings, self.captions, self.numbers, self.notes = [], [], [], []
        self.text = path.read_text()
        self.feed(self.text)
        self.data = json.loads(re.search(r'id="data">(.*?)</script>', self.text, re.DOTALL)[1])

    def handle_starttag(self, tag, attributes):
        self.tag, self.attributes = tag, dict(attributes)
        if "src" in self.attributes:
            self.sources.append(self.attributes["src"])

    def handle_data(self, data):
        for tag, found in (
            ("h2", self.headings),
            ("figcaption", self.captions),
            ("td", self.numbers),
            ("p", self.notes),
        ):
            if self.tag == tag and data.strip():
                found.append(data)


@pytest.fixture
def folder(tmp_path):
    folder = tmp_path / "images"
    for i in range(9):
        place = folder / f"class {i % 2}" / f"{i}.{'jpg' if i % 2 else 'png'}"
        place.parent.mkdir(parents=True, exist_ok=True)
        scene(i, (30, 20 + i)).save(place)
    (folder / "notes.txt").write_text("no image")
    Image.fromarray(np.arange(256, dtype="uint8").reshape(16, 16)).save(folder / "gray.png")
    return folder


@pytest.fixture
def run(capsys, folder, tmp_path):
    """Runs `inspect` on a model or a path; returns its exit status, the page, lines and errors."""

    def run_command(model, *options, images=folder, output=tmp_path / "out" / "page.html"):
        if not isinstance(model, (str, type(tmp_path))):
            model.save(tmp_path / "x.keras")
            model = tmp_path / "x.keras"
        status = main(["inspect", *map(str, (model, "--images", images, "--output", output, *options))])
        output_text, errors = capsys.readouterr()
        return status, Page(output) if not status else None, output_text, errors

    return run_command


def test_everything_a_classifier_has(run, trained_toy, folder):
    model = trained_toy()
    status, page, said, _ = run(model, "--num-shown", 3)
    assert status == 0 and page.headings[1:] == list(EVERYTHING)
    assert "Reading 10 of 10 images" in said and re.search(r"Written to .*page.html, \d+\.\d MB", said)
    files = sorted(path for path in folder.rglob("*") if path.suffix in (".png", ".jpg"))
    names = [path.relative_to(folder).as_posix() for path in files]
    assert [image["name"] for image in page.data["images"]] == [names[i] for i in (0, 4, 9)]
    images = np.concatenate([model.preprocess(np.asarray(Image.open(path).convert("RGB"))) for path in files])
    distances = np.array(page.numbers, float).reshape(2, 3)
    np.testing.assert_allclose(distances, attention_distance(model, images), atol=0.006)
    answers = [f"for class {label}" for label in np.argmax(model(images), axis=-1)[[0, 4, 9]]]
    said_of = [caption for caption in page.captions if caption.startswith("for class")]
    assert [caption.split(",")[0] for caption in said_of] == answers

    features = np.asarray(model.features(images))
    features = features / np.linalg.norm(features, axis=1, keepdims=True)
    cosines = features @ features[4]
    cosines[4] = -2  # itself
    nearest = [f"{names[i]}, {cosines[i]:.3f}" for i in np.argsort(-cosines)[:5]]
    start = page.captions.index(names[4], page.captions.index(names[4]) + 1)  # the first is that of the rollout
    assert page.captions[start + 1 : start + 6] == nearest
    assert all(source.startswith("data:image/") for source in page.sources)
    assert not re.search(r"(src|href)=\"?https?:|@import|url\(", page.text)


@pytest.mark.parametrize(
    "changes,lacking,prefix,said",
    [
        ({"pooling": "gap"}, (), [], "read from the patches"),
        ({"pooling": "map", "class_token": True}, (), ["class token"], "read from the patches"),
        ({"pooling": "none"}, (), ["class token"], "the model answers for every token"),
        ({"axial": True}, (), ["class token"], "attention of axial blocks"),
        ({"distillation": True}, (), ["class token", "distillation token"], "the model has two heads"),
        ({"num_classes": 0, "position_embedding": "relative"}, (POSITIONS,), ["class token"], "the model has no head"),
        ({"image_size": 32, "patch_size": 16, "resnet_stages": (1,)}, (FILTERS,), ["class token"], "speaks for it"),
        (
            {"prefix_positions": False, "register_tokens": 2, "position_placement": "stem"},
            (),
            ["class token", "register 1", "register 2"],
            "read from the class token",
        ),
    ],
)  # fmt: skip
def test_models_without_something_show_the_rest(run, trained_toy, changes, lacking, prefix, said):
    status, page, _, errors = run(trained_toy(**changes), "--num-shown", 2, "--max-images", 4)
    assert status == 0, errors
    assert page.headings[1:] == [title for title in EVERYTHING if title not in lacking]
    assert page.data["prefix"] == prefix and (page.data["positions"] is None) == (POSITIONS in lacking)
    assert said in " ".join(page.notes)
    assert ("along rows, then along columns" in page.text) == ("axial" in changes)
    tokens = len(prefix) + np.prod(page.data["grid"])
    levels = np.frombuffer(base64.b64decode(page.data["images"][0]["levels"]), "uint8")
    assert levels.size == 2 * 3 * tokens**2


def test_a_large_model_shows_fewer_images_then_fewer_layers(trained_toy):
    model = trained_toy(depth=5)  # 17 * 17 * 3 bytes a layer, 5,780 letters of base64 an image
    pixels = np.zeros((4, 16, 16, 3), "uint8")
    images = Images(["a", "b", "c", "d"], pixels / np.float32(127.5) - 1, pixels)
    for megabytes, count, layers in (
        (0.024, 4, [1, 2, 3, 4, 5]),
        (0.0116, 2, [1, 2, 3, 4, 5]),
        (0.0036, 1, [1, 3, 5]),
        (1e-6, 1, [5]),
    ):
        data = AttentionData(model, images, megabytes)
        settings = data.settings()
        assert len(settings["images"]) == count == 4 - data.left_out and settings["layers"] == layers
        assert len(settings["images"][0]["levels"]) == -(-17 * 17 * 3 * len(layers) // 3) * 4


def test_what_a_page_leaves_out_is_said(run, trained_toy):
    status, page, said, _ = run(trained_toy(depth=5), "--num-shown", 4, "--max-megabytes", 0.0036)
    assert status == 0 and "1 of 4 images" in said and "3 of 5 layers" in said
    assert "--max-megabytes makes room for more" in page.text


def test_one_image_has_no_neighbors(run, trained_toy):
    status, page, _, _ = run(trained_toy(), "--max-images", 1)
    assert status == 0 and page.headings[1:] == [ROLLOUT, DISTANCE, POSITIONS, FILTERS]


def test_a_folder_gets_a_page_by_a_name_of_its_own(trained_toy, folder, tmp_path, capsys):
    trained_toy().save(tmp_path / "x.keras")
    command = ["inspect", str(tmp_path / "x.keras"), "--images", str(folder), "--output", str(tmp_path / "new")]
    assert main([*command, "--max-images", "2"]) == 0
    assert [path.name for path in (tmp_path / "new").iterdir()] == ["inspect.html"]
    assert main(command) == 1 and "inspect.html exists already" in capsys.readouterr().err


@pytest.mark.parametrize(
    "target,words", [("mean_color", "mean color"), ("downsampled_color", "4 x 4"), ("pixels", "pixels")]
)
def test_reconstructions_of_a_masked_patch_model(run, trained_toy, target, words):
    model = MaskedPatchModel(trained_toy(num_classes=0), target)
    model.head.kernel.assign(np.random.default_rng(0).standard_normal(model.head.kernel.shape))
    status, page, _, errors = run(model, "--num-shown", 2, "--max-images", 3)
    assert status == 0, errors
    assert page.headings[1:3] == [ROLLOUT, MASKED] and any(words in note for note in page.notes)
    assert [page.captions.count(name) for name in ("given", "predicted", "true target")] == [2, 2, 2]


def test_reconstructions_of_a_run(run, data_dir, tmp_path):
    """The head of a masked-patch run is in its checkpoints."""
    recipe = replace(
        MASKED_PATCH,
        architecture=Architecture("Ti/2", depth=1, width=12, mlp_dim=24, num_heads=3),
        data=replace(MASKED_PATCH.data, data_dir=data_dir, batch_size=8),
        run=replace(MASKED_PATCH.run, folder=str(tmp_path / "run"), steps_per_execution=1),
        optimizer=replace(MASKED_PATCH.optimizer, warmup_steps=1),
        total_steps=2,
    )
    run_recipe(recipe)
    before = sorted(path.name for path in (tmp_path / "run").iterdir())
    status, page, _, errors = run(tmp_path / "run", "--max-images", 2)
    assert status == 0, errors
    assert MASKED in page.headings
    assert sorted(path.name for path in (tmp_path / "run").iterdir()) == before


def test_labels_of_a_run(run, trained_toy, tmp_path):
    (tmp_path / "run").mkdir()
    write_recipe(FINE_TUNE, tmp_path / "run" / "recipe.json")
    trained_toy().save(tmp_path / "run" / "model.keras")
    (tmp_path / "run" / "labels.txt").write_text("ape\nbee\ncat\ndog\nelk\n")
    status, page, _, errors = run(tmp_path / "run", "--max-images", 2)
    assert status == 0, errors
    answers = [caption for caption in page.captions if caption.startswith("for ")]
    assert len(answers) == 2 and all(re.match("for (ape|bee|cat|dog|elk), ", answer) for answer in answers)


def listing(folder):
    return {path: path.read_bytes() for path in folder.rglob("*") if path.is_file()}


@pytest.mark.parametrize(
    "images,output,options,message",
    [
        ("no", "page.html", (), r"There is no folder .*no\. Give --images a folder with images, at any depth"),
        ("empty", "page.html", (), r"There are no images in .*empty\. Images are files that end in \.jpg, "),
        ("images", "taken.html", (), r"taken\.html exists already\. Remove it or choose another --output"),
        ("images", "taken.html/page", (), r"taken\.html is a file, not a folder\. Choose another --output"),
        ("images", "page.html", ("--num-shown", 0), r"must be at least 1.*Received: 0, 128 and 8\.0"),
        ("images", "page.html", ("--max-megabytes", "nan"), r"above 0\. Received: 6, 128 and nan"),
    ],
)
def test_what_can_be_seen_before_a_model_is_loaded(run, tmp_path, images, output, options, message, monkeypatch):
    monkeypatch.setattr("keras_vit.cli.inspect.model.load", lambda _: pytest.fail("the model was loaded first"))
    (tmp_path / "empty").mkdir()
    (tmp_path / "taken.html").write_text("mine")
    before = listing(tmp_path)
    status, _, _, errors = run(tmp_path / "x.keras", *options, images=tmp_path / images, output=tmp_path / output)
    assert status == 1 and re.search(message, errors), errors
    assert listing(tmp_path) == before


def test_a_image_that_cannot_be_read(run, trained_toy, folder, tmp_path, monkeypatch):
    report = "keras_vit.cli.inspect.report.make_report"
    monkeypatch.setattr(report, lambda *_: pytest.fail("the model was looked into first"))
    (folder / "a.jpg").write_text("no image")
    status, _, _, errors = run(trained_toy())
    assert status == 1 and re.search(r"a\.jpg cannot be read as an image: .*Mend the file or take it out", errors)
    assert not (tmp_path / "out").exists()


def test_models_without_patches_and_no_model(run, folder, tmp_path):
    resnets = {
        "BiT": keras_vit.BiT(stages=(1,), image_size=16, num_classes=3),
        "AxialResNet": keras_vit.AxialResNet(image_size=32, num_classes=3, stages=(1,), num_heads=2),
    }
    for kind, model in resnets.items():
        status, _, said, errors = run(model)
        assert status == 1 and f"is a {kind}, a ResNet: it has no tokens of patches" in errors, errors
        assert "Expected a VisionTransformer" in errors and "nearest_neighbors" in errors and not said
    (tmp_path / "cut.keras").write_bytes(b"PK")
    for name, message in (("none", "There is no model file"), ("cut", "is no .keras file, or cut short")):
        status, _, _, errors = run(tmp_path / f"{name}.keras")
        assert status == 1 and message in errors
    assert not (tmp_path / "out").exists()


def test_a_full_disk_leaves_nothing(run, trained_toy, tmp_path, monkeypatch):
    def fail(*_, **__):
        raise OSError("the disk is full")

    monkeypatch.setattr("tensorflow.io.gfile.rename", fail)
    status, _, _, errors = run(trained_toy(), "--max-images", 2)
    assert status == 1 and "disk is full" in errors and not list((tmp_path / "out").iterdir())
