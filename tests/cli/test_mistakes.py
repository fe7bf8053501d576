"""Mistakes on the command line end with status 1 and name the option or value, before a model is loaded."""

import pytest

from keras_vit.recipes.recipe import Run
from keras_vit_cli.inputs import check_dataset, check_model_and_dataset, check_weights
from keras_vit_cli.main import main
from keras_vit_cli.recipe_options import check_new_run

MISTAKES = [
    # Options of other programs, and the order of words.
    ("sweep --recipe.total-steps 3", "keras-vit sweep NAME --recipe.total-steps 3"),
    ("sweep finetune-pets --lr 0.1", "--lr. Use --recipe.optimizer.learning-rate"),
    # Words of other commands and programs.
    ("finetuning photos", "Did you mean finetune?"),
    ("train cifar10-10ep --dataset folder:photos", "--dataset. Use --data.dataset DATASET"),
    ("train cifar10-10ep --batch-size=48", "--batch-size. Use --data.batch-size N"),
    ("train cifar10-10ep --model m.npz", "--model. Use --weights WEIGHTS"),
    ("evaluate --weights m.npz --dataset digits", "Type keras-vit evaluate MODEL"),
    ("few-shot m.npz --dataset digits --test-split test", "--test-split. Use --split SPLIT"),
    ("classify photos --topk 3", "Did you mean --top?"),
    ("classify photos --json found.json", "--json > found.json"),
    # Weights.
    ("describe damaged.npz", "damaged.npz"),
    ("describe vit/imagenet21k/ViT-B_17", "vit/imagenet21k/ViT-B_16"),
    ("evaluate nope/model.keras --dataset digits", "The folder nope does not exist"),
    ("evaluate deit_tiny_patch16_224.safetensors --dataset digits", "hf:timm/deit_tiny_patch16_224"),
    ("evaluate stopped/model.keras --dataset digits", "keras-vit train stopped --run.folder stopped --run.resume"),
    # Exported models.
    ("classify photos/cat/0.png --model m.tflite --attention out", "--attention"),
    ("classify photos/cat/0.png --model m.tflite --preprocessing half", "m.tflite has its own preprocessing"),
    ("classify photos/cat/0.png --image-size 48", "or pass --model"),
    ("describe m.tflite", "zero bytes"),
    ("classify photos/cat/0.png --model m.onnx", "m.onnx cannot be read"),
    ("evaluate m.tflite --dataset folder:photos --resize squash", "m.tflite has its own preprocessing"),
    ("probe m.tflite --dataset folder:photos", "keras-vit describe m.tflite"),
    ("benchmark bad.keras", "must be exported first"),
    ("convert m.npz x.bin", "x.bin"),
    ("inspect m.npz --images no --output x.html", "HERE/no"),
    # Datasets.
    ("evaluate m.npz --dataset ./photos", "folder:./photos"),
    ("finetune one", "'cat'"),
    ("probe cifar10/R6_Ti_4 --dataset folder:one", "'cat'"),
    ("sweep jft-b16", "--recipe.data.dataset"),
    ("train cifar10-scratch --data.dataset ./photos", "--data.dataset folder:./photos"),
    ("train cifar10-scratch --data.dataset folder:photos/cat/0.png", "is a file"),
    ("train cifar10-scratch --data.dataset hf:./gone", "'./gone'"),
    ("train cifar10-scratch --data.dataset tfrecord:gone", "gone"),
    # Values.
    ("benchmark", ".tflite"),
    ("classify", "keras-vit classify cat.jpg"),
    ("classify photos/cat/0.png --std 1 1 1", "--model"),
    ("classify photos/cat/0.png --top 0", "--top"),
    ("convert m.npz --output y.npz --num-classes -1", "--num-classes"),
    ("convert m.npz --output y.npz --preprocessing imagnet", "--preprocessing imagenet, clip, half"),
    ("convert m.npz --output y.npz --preprocessing no.json", "no.json"),
    ("convert m.npz --output y.npz --preprocessing brace.json", "brace.json is not valid JSON"),
    ("export m.npz --output new --dataset digits --check-images 0", "--check-images"),
    ("export m.npz --output new --dataset digits --formats int8 --calibration-images 5", "1000 and 5"),
    ("export m.npz --output new --formats", "--formats"),
    ("export m.npz --output new --keep-float head", "--keep-float"),
    ("export m.npz --output new --target npu:SM8751", "SM8750."),
    ("export m.npz --output new --target tpu", "npu:SM8750"),
    ("export m.npz --sensitivity", "--dataset"),
    ("inspect m.npz --images empty --output x.html", "empty"),
    ("inspect m.npz --images photos --output taken.html", "--output"),
    ("inspect m.npz --images photos --output taken.html/report", "is a file"),
    ("inspect m.npz --images photos --output x.html --max-megabytes nan", "nan"),
    ("preflight", "name of a recipe"),
    ("preflight --npu SM8750", ".tflite"),
    ("preflight bad.keras --npu SM8750", "bad.keras"),
    ("preflight cifar10-scratch --npu SM8750", "cifar10-scratch"),
    ("preflight cifar10-scratch --weights gone.keras --architecture.depth 3", "--architecture.depth 3"),
    ("preflight m.tflite --output taken.npz", "--output"),
    (
        "sweep finetune-pets --recipe.weights None --recipe.data.train-split train[:80%]",
        "--held-out-split 'train[70%:80%]'",
    ),
    ("sweep mae-b16", "mae-b16"),
    ("sweep digits-finetune", "keras-vit train digits-masked-patch"),
    ("train cifar10-finetune --weights m.npz --architecture.depth 2", "Received: --architecture.depth 2"),
    ("train cifar10-mae --architecture.variant S/8 --data.image-size 30", "depth 6, mlp_dim 384, num_heads 6"),
    ("train d.json", "d.json"),
    ("train mae-b16 --decoder-width 100", "--decoder-width 112"),
    # Output that replaces other files.
    ("demo --output old", "old"),
    # A length in steps and in epochs.
    ("train cifar10-10ep --total-steps 20 --total-epochs=3", "--total-steps 20, --total-epochs 3"),
]


@pytest.mark.parametrize("line,word", MISTAKES, ids=[line for line, _ in MISTAKES])
def test_mistake(line, word, mistake, no_load):
    errors = mistake(line)
    assert word in errors, errors


@pytest.mark.parametrize(
    "line,word",
    [
        ("convert x.npz", "--output PATH"),
        ("evaluate x.npz --dataset d --resize crop", "--resize"),
    ],
)
def test_mistake_that_tyro_reports(line, word, capsys):
    with pytest.raises(SystemExit) as stopped:
        main(line.split())
    errors = capsys.readouterr().err
    assert stopped.value.code == 2 and word in errors and f"keras-vit {line.split()[0]} --help" in errors


def test_mistakes_of_a_training_are_reported_together(mistake):
    options = "--total-steps=20 --run.epoch-steps 15 --data.image-size 31 --data.dataset folder:gone --run.folder old"
    lines = mistake(f"train cifar10-10ep {options}").splitlines()
    words = ("--run.epoch-steps 10", "--optimizer.warmup-steps 2", "--data.image-size 32", "'gone'", "old")
    assert [word in line for word, line in zip(words, lines, strict=True)] == [True] * 5, lines


def test_inputs_that_may_be_right(workplace):
    weights = "m.npz ckpt/bert-1 ./ckpt/bert-1 vit/imagenet21k/ViT-B_16.npz hf:a/b.npz gs://bucket/x.npz / stopped run"
    for name in (None, "cifar10/R6_Ti_4", *weights.split()):
        check_weights(name)
    for dataset in "digits folder:photos tfrecord:*.tfrecord tfrecord:gs://b/x hf:owner/name vtab/dtd".split():
        check_dataset(dataset)
    for name in "m.npz run cifar10/R6_Ti_4 vit/imagenet21k/ViT-B_16 hf:a/b".split():
        for dataset in "digits cifar10/3.0.2 folder:photos hf:a/b vtab/dtd cifar100".split():
            check_model_and_dataset(name, dataset)
    for folder in ("gone", "stopped", "gs://bucket/x", None):
        check_new_run(Run(folder=folder))
    for folder in ("old", "cut"):
        check_new_run(Run(folder=folder, resume=True))
