import inspect
from dataclasses import fields

import tyro
from scenes import scene

from keras_vit.recipes.prepare import prepare
from keras_vit_cli.prepare import Prepare


def test_numbers_of_images_are_printed(tmp_path, run_cli):
    source, out = tmp_path / "images", tmp_path / "out"
    for split, count in (("train", 3), ("test", 1)):
        (source / split / "cat").mkdir(parents=True)
        for seed in range(count):
            scene(seed).save(source / split / "cat" / f"{seed}.png")
    command = ["prepare", source, "--output", out, "--against", f"folder:{source}/test"]
    status, output, _ = run_cli(*command, "--dry-run")
    assert status == 0 and "train: skipped: 0 unreadable, 1 copies of test images\n" in output
    status, output, _ = run_cli(*command, "--overwrite")
    assert status == 0 and output.splitlines()[:2] == [
        "test: 1 images in 1 files; skipped: 0 unreadable, 0 copies of test images",
        "train: 2 images in 1 files; skipped: 0 unreadable, 1 copies of test images",
    ]
    assert f"--data.dataset tfrecord:{out}" in output


def test_options_are_the_parameters_of_prepare():
    parameters = inspect.signature(prepare).parameters
    assert [field.name for field in fields(Prepare)] == list(parameters)
    beam = "--beam-runner FlinkRunner --beam-options parallelism=4 flink_master=local"
    options = tyro.cli(Prepare, args=["a", "--output", "b", *beam.split()])
    assert options.beam_options == ("parallelism=4", "flink_master=local")
    defaults = tyro.cli(Prepare, args=["a", "--output", "b"])
    for name, parameter in list(parameters.items())[2:]:
        assert getattr(defaults, name) == parameter.default
