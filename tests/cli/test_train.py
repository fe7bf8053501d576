import json

import pytest

import keras_vit
from keras_vit.recipes.configs import RECIPES
from keras_vit.recipes.recipe_file import read_recipe, write_recipe
from keras_vit_cli.main import main
from keras_vit_cli.train import find_recipe, run_name

TOY = (
    "--architecture.variant Ti/4 --architecture.depth 1 --architecture.width 12 --architecture.mlp-dim 24 "
    "--architecture.num-heads 3 --data.image-size 8 --data.crop none --optimizer.warmup-steps 1 "
    "--run.steps-per-execution 2 --total-steps 4"
).split()


def test_recipes_are_listed(capsys):
    assert main(["train"]) == 0
    output = capsys.readouterr().out
    names = [name for line in output.splitlines() if line.startswith("  ") for name in line.split()]
    assert names == list(RECIPES) and names[0].startswith("digits-")  # of a laptop first
    assert "\n\nA small ViT on CIFAR-10: from scratch, and" in output and max(map(len, output.splitlines())) <= 120


@pytest.mark.slow
def test_recipe_by_name_and_from_its_file(data_dir, tmp_path, capsys, monkeypatch):
    monkeypatch.chdir(tmp_path)
    arguments = ["digits-masked-patch", "--data.data-dir", data_dir, *TOY]
    assert main(["train", *arguments]) == 0
    first = tmp_path / "runs" / "digits-masked-patch"
    assert {"model.keras", "metrics.json", "recipe.json", "log.csv"} <= {file.name for file in first.iterdir()}
    assert "4 steps" in capsys.readouterr().out
    again = ["--run.folder", "again", "--run.checkpoint-steps", "2"]
    assert main(["train", str(first / "recipe.json"), *again]) == 0
    one, two = (json.loads((folder / "metrics.json").read_text()) for folder in (first, tmp_path / "again"))
    assert one["loss"] == pytest.approx(two["loss"], abs=1e-6)

    tuned = ["digits-finetune", "--data.data-dir", data_dir, "--total-steps", "4", "--optimizer.warmup-steps", "1"]
    tuned += ["--data.image-size", "8", "--run.steps-per-execution", "2"]
    capsys.readouterr()
    assert main(["train", *tuned]) == 0
    printed = capsys.readouterr().out
    folder = tmp_path / "runs" / "digits-finetune"
    assert (folder / "labels.txt").read_text().split() == [str(digit) for digit in range(10)]
    top1 = json.loads((folder / "metrics.json").read_text())["top1"]
    assert " images of the split 'test' of digits:\n" in printed and f"\ntop-1 {100 * top1:.1f} %\n" in printed
    assert "\nModel: runs/digits-finetune/model.keras\n\nNext:\n    keras-vit evaluate runs/digits-finetune " in printed
    assert 0 <= top1 <= 1 and f"| top1 | {top1:.4g} |" in (folder / "model_card.md").read_text()


@pytest.mark.slow
def test_masked_autoencoder(data_dir, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    decoder = "--decoder-depth 1 --decoder-width 8 --decoder-heads 2".split()
    decoder += "--masked-fraction 0.5 --no-normalize-targets".split()
    data = ["--data.dataset", "digits", "--data.data-dir", data_dir, "--data.batch-size", "16"]
    assert main(["train", "mae-b16", *TOY, *decoder, *data, "--run.epoch-steps", "4"]) == 0
    folder = tmp_path / "runs" / "mae-b16"
    recipe = read_recipe(folder / "recipe.json")
    assert (recipe.decoder_width, recipe.masked_fraction, recipe.normalize_targets) == (8, 0.5, False)
    assert keras_vit.load(folder).config.pooling == "gap"


@pytest.mark.parametrize(
    "arguments,message",
    [
        (["cifar10-scrach"], "Did you mean one of: cifar10-scratch, "),
        (["nothing.json"], "nothing.json"),
        (["jft-b16"], "--data.dataset"),
        (["digits-masked-patch", "--data.batch-size", "0"], "batch"),
        (["vit", "--data.batch-size", "0"], "No recipe 'vit'"),
        (["finetune-pets", "--optimizer.lr", "0.1"], "no option --optimizer.lr. Use --optimizer.learning-rate"),
        (["plain-s16-90", "--data.image-size", "225"], "Use --data.image-size 224 or --data.image-size 240, or"),
        (["mae-b16", "--decoder-width", "100"], "Received: --decoder-width 100, --decoder-heads 16"),
        (["cifar10-finetune"], "train it with `keras-vit train cifar10-masked-patch`, or choose another"),
        (["cifar10-finetune", "--weights", "x.keras", "--architecture.depth", "2"], "depth 2 has no effect, since the"),
        (
            ["cifar10-mae", "--architecture.variant", "S/8", "--data.image-size", "30"],
            "Note: of the recipe, depth 6, mlp_dim 384, num_heads 6 still apply to the variant S/8. For its own pass "
            "--architecture.depth None --architecture.mlp-dim None --architecture.num-heads None\n",
        ),
    ],
)
def test_errors(arguments, message, capsys, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    assert main(["train", *arguments]) == 1
    assert message in capsys.readouterr().err


def test_what_needs_no_tensorflow_is_reported_at_once(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "metrics.json").touch()
    options = "--total-steps=20 --run.epoch-steps 15 --data.image-size 31 --data.dataset folder:gone --run.folder ."
    assert main(["train", "cifar10-10ep", *options.split()]) == 1
    assert capsys.readouterr().err.splitlines() == [
        "keras-vit: --run.epoch-steps 15 is not a multiple of --run.steps-per-execution 10, so every epoch would "
        "compile twice. Use --run.epoch-steps 10.",
        "--optimizer.warmup-steps must be less than --total-steps, which must be at least 1. Received: "
        "--optimizer.warmup-steps 390 for a run of 20 steps. Use --optimizer.warmup-steps 2.",
        "An image of (31, 31) pixels (height, width) cannot be cut into patches of (4, 4). Use --data.image-size 28 or "
        "--data.image-size 32, or another patch_size.",
        "There is no folder 'gone'. Expected a folder with <class>/<image> or <split>/<class>/<image>.",
        ". already contains a run. Resume it with --run.resume, or choose another --run.folder.",
    ]


def test_all_that_does_not_fit_a_small_folder_is_reported_at_once(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    for name in ("cat", "dog"):
        (tmp_path / "photos" / name).mkdir(parents=True)
        for i in range(10):
            (tmp_path / "photos" / name / f"{i}.jpg").write_bytes(b"")
    arguments = ["--data.dataset", "folder:photos", "--data.validation-split", "val", "--optimizer.warmup-steps", "6"]
    arguments += ["--total-steps", "60"]
    assert main(["train", "finetune-pets", *arguments]) == 1
    assert capsys.readouterr().err.splitlines() == [
        "keras-vit: --data.batch-size 512 is more than the 16 training images of 'folder:photos'. "
        "Use at most --data.batch-size 16.",
        "No split 'val' in folder:photos. Splits: train, test. Use --data.validation-split None.",
    ]
    assert not (tmp_path / "runs" / "finetune-pets").exists()


def test_the_folder_of_a_run_means_its_recipe(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "runs" / "x").mkdir(parents=True)
    recipe = find_recipe("plain-s16-90")
    write_recipe(recipe, tmp_path / "runs" / "x" / "recipe.json")
    assert find_recipe("runs/x") == find_recipe("runs/x/recipe.json") == recipe
    assert run_name("runs/x") == run_name("runs/x/") == "x"
    with pytest.raises(ValueError, match="No recipe 'runs'. "):
        find_recipe("runs")


def test_find_recipe():
    assert find_recipe("plain-s16-90").data.image_size == 224


@pytest.mark.parametrize("name", ["digits-finetune", "runs/digits-finetune/recipe.json"])
def test_run_name(name):
    assert run_name(name) == "digits-finetune"
