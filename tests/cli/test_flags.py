"""Recipe fields in error messages become the flags that the user can type."""

import pytest
import tyro

from keras_vit.recipes.recipe import Supervised
from keras_vit_cli.flags import fields_to_flags
from keras_vit_cli.main import main


@pytest.mark.parametrize(
    "message,expected",
    [
        (
            "decoder_width=30, decoder_heads=4, optimizer.beta_2",
            "--decoder-width 30, --decoder-heads 4, --optimizer.beta-2",
        ),
        ("Use run.epoch_steps=100.", "Use --run.epoch-steps 100."),
        ("set run.folder='gs://BUCKET/FOLDER'; or", "set --run.folder gs://BUCKET/FOLDER; or"),
        ("resume with run.resume=True.", "resume with --run.resume."),
        ("set run.tensorboard=False", "set --run.no-tensorboard"),
        (
            "data.augment.mixup_alpha=0.0, data.mean=(0.5, 0.5, 0.5)",
            "--data.augment.mixup-alpha 0.0, --data.mean 0.5 0.5 0.5",
        ),
        (
            "Set data.mean=(0.485, 0.456, 0.406) and data.std=(0.229, 0.224, 0.225).",
            "Set --data.mean 0.485 0.456 0.406 and --data.std 0.229 0.224 0.225.",
        ),
        ("optimizer.warmup_steps=20 for total_steps=10", "--optimizer.warmup-steps 20 for --total-steps 10"),
        ("less than total_steps, Received: loss='sigmoid'", "less than --total-steps, Received: --loss sigmoid"),
        ("The loss of the teacher in runs/data.cache", "The loss of the teacher in runs/data.cache"),
        ("Perhaps you meant 'total_steps'. Fix the file", "Perhaps you meant 'total_steps'. Fix the file"),
        ("optimizer.layer_decay=None, run.unknown", "--optimizer.layer-decay None, run.unknown"),
    ],
)
def test_fields_to_flags(message, expected):
    assert fields_to_flags(message) == expected


def test_flags_are_accepted_by_the_command_line():
    flags = fields_to_flags(
        "run.resume=True data.mean=(0.4, 0.5, 0.6) optimizer.layer_decay=None run.folder='x'"
    ).split()
    recipe = tyro.cli(Supervised, args=flags)
    assert recipe.run.resume and recipe.data.mean == (0.4, 0.5, 0.6) and recipe.run.folder == "x"


@pytest.mark.parametrize(
    "command,flag", [("train", "--optimizer.warmup-steps"), ("sweep", "--recipe.optimizer.warmup-steps")]
)
def test_errors_of_commands_name_flags(command, flag, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    assert main([command, "cifar10-scratch", flag, "100000"]) == 1
    error = capsys.readouterr().err
    assert f"{flag} must be less than" in error and f"Received: {flag} 100000" in error
