"""The summary at the start of a run."""

from dataclasses import replace

import pytest
import tensorflow as tf

from keras_vit.recipes.processes.strategies import choose_strategy
from keras_vit.recipes.processes.workers import Workers
from keras_vit.recipes.runs import summary
from keras_vit.recipes.runs.open_run import OpenRun, check_devices
from keras_vit.recipes.runs.run_data import RunData
from keras_vit.recipes.runs.summary import describe_run


def test_summary_of_a_run(recipe, toy, logical_cpus):
    logical_cpus(2)
    strategy, data, model = choose_strategy("mirrored"), RunData(recipe), toy(num_classes=10)
    check_devices(recipe, strategy)
    data.check()
    run = OpenRun(recipe, strategy, Workers(strategy), data)
    lines = describe_run(run, model, 60).splitlines()
    expected = {
        "devices": ("2 CPU", "2 replicas"),
        "batch": ("32 images, 16 per replica", "2 accumulation steps of 8"),
        "length": ("100 steps, 2.917 epochs", "every 30 steps"),
        "model": (f"depth {model.config.depth} and width {model.config.width}", f"{model.count_params():,} parameters"),
        "data": ("1,097 in train, 200 in validation, 500 in test", "10 classes", "16 x 16"),
        "precision": ("float32",),
        "optimizer": ("adamw", "0.001", "10 warmup", "cosine", "decay 0.1", "clipped at 1", "EMA 0.99"),
        "folder": (recipe.run.folder, "step 60"),
    }
    assert [line.split()[0] for line in lines] == list(expected)
    for line, parts in zip(lines, expected.values()):
        assert all(part in line for part in parts), line
    resumed = replace(recipe, run=replace(recipe.run, resume=True))
    assert "from step 0" in describe_run(replace(run, recipe=resumed), model)


@pytest.mark.parametrize("flags,slow", [("avx512f amx_bf16", False), ("avx512f", True)])
def test_summary_names_slow_bfloat16(recipe, toy, tmp_path, monkeypatch, flags, slow):
    (tmp_path / "cpuinfo").write_text(f"flags : fpu {flags}\n")
    monkeypatch.setattr(summary, "CPU_INFO", tmp_path / "cpuinfo")
    recipe = replace(recipe, run=replace(recipe.run, precision="mixed_bfloat16"))
    strategy = tf.distribute.get_strategy()
    text = describe_run(OpenRun(recipe, strategy, Workers(strategy), RunData(recipe)), toy(num_classes=10))
    assert "mixed_bfloat16" in text and ("no bfloat16 products" in text) == slow
