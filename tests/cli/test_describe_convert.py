"""`keras-vit describe`, `convert` and `evaluate`: what they print and write, and how they refuse."""

import json

import numpy as np
import pytest
from goldens import golden_file, golden_io
from PIL import Image

import keras_vit
from keras_vit_cli.main import main
from keras_vit.models.bit import BiT
from keras_vit.recipes.data import decoded_images, open_dataset
from keras_vit.recipes.recipe import Data


@pytest.fixture
def run(capsys):
    """Runs a command; returns its exit status, output and errors."""

    def run_command(*arguments):
        status = main([str(argument) for argument in arguments])
        return status, *capsys.readouterr()

    return run_command


@pytest.fixture
def folder(tmp_path):
    """A data set of images of three classes and many sizes: (folder, images, labels)."""
    random, images, labels = np.random.default_rng(0), [], []
    for i in range(13):
        image = random.integers(0, 256, (5 + i, 20 - i, 3), dtype="uint8")
        place = tmp_path / "images" / "test" / f"class{i % 3}"
        place.mkdir(parents=True, exist_ok=True)
        Image.fromarray(image if i else image[..., 0]).save(place / f"{i:02}.png")
        images.append(image if i else np.repeat(image[..., :1], 3, -1))
        labels.append(i % 3)
    return f"folder:{tmp_path / 'images'}", images, np.array(labels)


def test_describe(run, tmp_path):
    file = golden_file(tmp_path, "vit_jax_prelogits")
    status, output, _ = run("describe", file)
    lines = {line.split()[0]: line.split(maxsplit=1)[1] for line in output.splitlines() if " " in line.strip()}
    assert status == 0 and lines["source"] == "google-research/vision_transformer"
    assert (lines["num_classes"], lines["gelu"], lines["epsilon"]) == ("21", "tanh", "1e-06")
    assert lines["image_size"] == "(64, 64)"
    no_table = golden_file(tmp_path, "big_vision_gap_sincos2d")
    assert "\nimage_size    not in the file\n" in run("describe", no_table)[1]
    assert lines["weights"] == f"{keras_vit.load(file).count_params():,}"
    assert "preprocessing:" in output and "arguments:" in output and "none of the published" in output


@pytest.mark.parametrize("golden", ["hf_deit", "timm_layerscale_reg", "big_vision_map", "big_vision_bit_paper"])
def test_describe_for_programs(golden, run, tmp_path):
    status, output, _ = run("describe", golden_file(tmp_path, golden), "--json")
    found = json.loads(output)
    assert status == 0 and found["num_classes"] == 10
    expected = {"hf_deit": "Hugging Face transformers", "timm_layerscale_reg": "timm"}
    assert found["source"].startswith(expected.get(golden, "google-research/big_vision"))
    assert found["architecture"] == ("BiT" if "bit_" in golden else "VisionTransformer")
    assert found["preprocessing"]["crop_fraction"] in (1.0, 0.875, 0.9)


def test_describe_knows_the_variant_and_keras_files(run, toy, tmp_path):
    keras_vit.ViT_Ti16(image_size=32, num_classes=3).save(tmp_path / "x.keras")
    status, output, _ = run("describe", tmp_path / "x.keras", "--json")
    found = json.loads(output)
    assert status == 0 and found["variant"] == "Ti/16" and found["source"] == "keras_vit"
    assert found["image_size"] == [32, 32] and found["preprocessing"]["mean"] == [0.5] * 3
    for size, shown in ((None, "any"), (16, "(16, 16)")):
        BiT(stages=(1,), width_factor=0.5, image_size=size).save(tmp_path / "bit.keras")
        status, output, _ = run("describe", tmp_path / "bit.keras")
        assert status == 0 and f"\nimage_size    {shown}\n" in output


def test_convert_keeps_the_outputs(run, tmp_path):
    io = golden_io("hf_deit")
    status, output, _ = run("convert", golden_file(tmp_path, "hf_deit"), tmp_path / "x.keras", "--num-heads", 3)
    assert status == 0 and output.startswith(f"Wrote {tmp_path / 'x.keras'} (") and output.count("\n") == 2
    assert run("convert", tmp_path / "x.keras", tmp_path / "deit")[1].count("Wrote") == 4
    assert "x.keras`.\n" in (tmp_path / "deit" / "model_card.md").read_text()
    assert "with num_heads=3." in (tmp_path / "x.model_card.md").read_text()
    for file in (tmp_path / "x.keras", tmp_path / "deit"):
        np.testing.assert_allclose(keras_vit.load(file)(io["images"]), io["logits"], atol=1e-4)


def test_convert_changes_size_and_head(run, tmp_path):
    file = golden_file(tmp_path, "vit_jax_token")
    assert run("convert", file, tmp_path / "x.npz", "--image-size", 96, "--num-classes", 0)[0] == 0
    model = keras_vit.load(tmp_path / "x.npz")
    assert model.image_size == (96, 96) and model.num_classes == 0
    expected = keras_vit.load(file, image_size=96, num_classes=0)
    np.testing.assert_array_equal(model.positions.table, expected.positions.table)


def test_errors_are_one_line_and_status_1(run, tmp_path):
    file, bit = golden_file(tmp_path, "vit_jax_token"), golden_file(tmp_path, "big_vision_bit_v1")
    taken = tmp_path / "taken.npz"
    taken.write_text("mine")
    cases = [
        (("describe", tmp_path / "no.npz"), "keras-vit: There is no weights file"),
        (("describe", taken), "keras-vit: .*taken.npz cannot be read as an .npz file"),
        (("describe", "vit/imagenet21k/ViT-B_17"), "keras-vit: There is no published checkpoint"),
        (("convert", file, taken), "keras-vit: .*taken.npz exists already"),
        (("convert", file, tmp_path / "x.bin"), "keras-vit: Expected a name that ends in"),
        (("convert", golden_file(tmp_path, "hf_vit"), tmp_path / "y.npz", "--num-heads", 3), "cannot say gelu='erf'"),
        (("convert", golden_file(tmp_path, "hf_vit"), tmp_path / "y.keras"), "Say it: num_heads="),
        (("convert", bit, tmp_path / "y.npz"), "Only a VisionTransformer can be saved as .npz"),
        (("evaluate", file, "--dataset", f"folder:{tmp_path}"), "keras-vit: .* is not laid out as"),
        (("evaluate", file, "--dataset", "no_such_set"), "knows no data set 'no_such_set'"),
    ]
    before = sorted(tmp_path.iterdir())
    for arguments, message in cases:
        status, output, errors = run(*arguments)
        assert (status, output) == (1, "") and "Traceback" not in errors
        assert pytest.raises(ValueError, match=message).matches(ValueError(errors)), errors
    assert sorted(tmp_path.iterdir()) == before and taken.read_text() == "mine"


def test_wrong_options_are_refused_before_anything_is_read(tmp_path):
    for arguments in (["convert", "x.npz"], ["describe"], ["evaluate", "x.npz", "--dataset", "d", "--resize", "crop"]):
        with pytest.raises(SystemExit) as stopped:
            main(arguments)
        assert stopped.value.code == 2


def test_evaluate_counts_every_image_once(run, folder, trained_toy, tmp_path):
    dataset, images, labels = folder
    model = trained_toy(num_classes=3, preprocessing={"image_size": 16, "resize": "shortest"})
    model.save(tmp_path / "x.keras")
    status, output, _ = run("evaluate", tmp_path / "x.keras", "--dataset", dataset, "--batch-size", 4)
    correct = np.mean(np.argmax(model(model.preprocess(images)), axis=-1) == labels)
    assert status == 0 and output.splitlines()[0].startswith(f"13 images of {dataset} (test), Preprocessing(")
    assert f"top-1 {correct:.2%}" in output and "top-5" not in output and "resize='shortest'" in output
    options = ("--resize", "squash", "--crop-fraction", 0.5)
    output = run("evaluate", tmp_path / "x.keras", "--dataset", dataset, *options)[1]
    assert "resize='squash', crop_fraction=0.5" in output


def test_evaluate_prints_top_5_of_many_classes_and_chance_for_an_empty_head(run, data_dir, trained_toy, tmp_path):
    options = ("--dataset", "digits", "--data-dir", data_dir, "--split", "test[:60]")
    batches = list(decoded_images(open_dataset(Data(dataset="digits", data_dir=data_dir)), "test[:60]", 60))
    assert len(batches) == 1 and all(image.shape == (8, 8, 3) for image in batches[0][0])
    for i, model in enumerate((trained_toy(num_classes=10), trained_toy().with_head(10))):
        model.save(tmp_path / f"{i}.keras")
        order = np.argsort(-np.asarray(model(model.preprocess(batches[0][0]))), axis=-1, kind="stable")
        hits = order == batches[0][1][:, None]
        status, output, _ = run("evaluate", tmp_path / f"{i}.keras", *options)
        assert status == 0 and f"top-1 {hits[:, 0].mean():.2%}\ntop-5 {hits[:, :5].any(-1).mean():.2%}" in output
    assert hits[:, 0].mean() < 0.3  # equal logits are no hits


def test_evaluate_refuses_what_it_cannot_count(run, data_dir, toy, tmp_path, monkeypatch):
    toy(num_classes=10).save(tmp_path / "x.keras")
    toy(num_classes=3).save(tmp_path / "three.keras")
    digits = ("--dataset", "digits", "--data-dir", data_dir)
    cases = [
        (("three.keras", *digits), "'digits' has 10 classes, but the model has 3. Fine-tune it"),
        (("x.keras", *digits, "--split", "holdout"), "No split 'holdout' in digits. Splits: "),
        (("x.keras", *digits, "--split", "test[:0]"), "The split 'test[:0]' of digits has no images"),
        (("x.keras", *digits, "--crop-fraction", 2), "`crop_fraction` must be above 0 and at most 1"),
    ]
    for (file, *options), message in cases:
        status, _, errors = run("evaluate", tmp_path / file, *options)
        assert status == 1 and message in errors
    unlabeled = [np.zeros((8, 8, 3), "uint8")], np.array([-1])  # as in the test split of ImageNet
    monkeypatch.setattr("keras_vit.recipes.evaluation.classification.decoded_images", lambda *_: iter([unlabeled]))
    assert "'test' of 'digits' has no labels" in run("evaluate", tmp_path / "x.keras", *digits)[2]


def test_evaluate_takes_a_bit(run, folder, tmp_path):
    BiT(stages=(1,), width_factor=0.5, num_classes=3, image_size=16).save(tmp_path / "bit.keras")
    status, output, _ = run("evaluate", tmp_path / "bit.keras", "--dataset", folder[0])
    assert status == 0 and "image_size=(16, 16)" in output and "top-1" in output


def test_images_of_a_folder_keep_their_sizes(folder):
    dataset, images, labels = folder
    batches = list(decoded_images(open_dataset(Data(dataset=dataset)), "test", 5))
    assert [len(batch) for batch, _ in batches] == [5, 5, 3]
    found = sorted(((p.shape, label) for batch, numbers in batches for p, label in zip(batch, numbers)), key=str)
    assert found == sorted(((p.shape, label) for p, label in zip(images, labels)), key=str)
    by_shape = {image.shape: image for image in images}
    for batch, _ in batches:
        for image in batch:
            assert image.dtype == np.uint8
            np.testing.assert_array_equal(image, by_shape[image.shape])
