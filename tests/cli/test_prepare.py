"""`keras-vit prepare`: its options and its output."""

import inspect
import sys
from dataclasses import fields

import pytest
import tyro
from scenes import scene

from keras_vit.recipes.prepare import prepare
from keras_vit_cli.prepare import Prepare


@pytest.fixture
def source(tmp_path):
    for split, seeds in (("train", range(3)), ("test", range(1))):
        (tmp_path / "images" / split / "cat").mkdir(parents=True)
        for seed in seeds:
            scene(seed).save(tmp_path / "images" / split / "cat" / f"{seed}.png")
    return str(tmp_path / "images")


def command(*arguments):
    return tyro.cli(Prepare, args=list(arguments))


def test_numbers_of_images_are_printed(source, tmp_path, capsys):
    out = str(tmp_path / "out")
    command(source, out, "--against", f"folder:{source}/test", "--dry-run").run()
    assert "train: skipped: 0 unreadable, 1 copies of test images\n" in capsys.readouterr().out
    command(source, out, "--against", f"folder:{source}/test", "--overwrite").run()
    lines = capsys.readouterr().out.splitlines()
    assert lines == [
        "test: 1 images in 1 files; skipped: 0 unreadable, 0 copies of test images",
        "train: 2 images in 1 files; skipped: 0 unreadable, 1 copies of test images",
        f"Skipped images are listed in {out}/*.csv",
        f"Train on the others with --data.dataset tfrecord:{out}",
    ]


def test_options_are_the_parameters_of_prepare():
    parameters = inspect.signature(prepare).parameters
    assert [field.name for field in fields(Prepare)] == list(parameters)
    options = command("a", "b", "--beam-runner", "FlinkRunner", "--beam-options", "parallelism=4", "flink_master=local")
    assert options.beam_options == ("parallelism=4", "flink_master=local")
    defaults = command("a", "b")
    for name, parameter in list(parameters.items())[2:]:
        assert getattr(defaults, name) == parameter.default


def test_missing_beam_is_reported_with_the_remedy(source, tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "apache_beam", None)
    monkeypatch.delitem(sys.modules, "keras_vit.recipes.prepare.beam", raising=False)
    with pytest.raises(ImportError, match=r"pip install 'keras_vit\[prepare\]', or omit --beam-runner"):
        command(source, str(tmp_path / "out"), "--beam-runner", "DirectRunner").run()
    assert not (tmp_path / "out").exists()
