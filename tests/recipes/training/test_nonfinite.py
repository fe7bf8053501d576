import keras
import numpy as np
import pytest
import tensorflow as tf

from keras_vit.recipes.runs.checkpoints import Checkpoints
from keras_vit.recipes.training.callbacks import (
    NonfiniteSteps,
    check_finite_metrics,
    check_finite_weights,
    finite_epoch_metrics,
    warn_of_skipped_steps,
)
from keras_vit.recipes.training.optimizers import SGD, AdamW


def batches(bad=(), steps=8):
    """Batches of 4 images; in the steps `bad`, one image of the second half has a NaN."""
    random = np.random.default_rng(0)
    inputs, targets = random.standard_normal((steps, 4, 3)), random.standard_normal((steps, 4, 2))
    for step in bad:
        inputs[step, 3, 0] = np.nan
    return inputs.astype("float32"), targets.astype("float32")


def build(optimizer):
    model = keras.Sequential([keras.Input((3,)), keras.layers.Dense(2, kernel_initializer="ones")])
    model.compile(optimizer, "mse", jit_compile=False)
    model.optimizer.build(model.trainable_variables)
    return model


def fit(model, data, *callbacks):
    dataset = tf.data.Dataset.from_tensor_slices(data)
    return model.fit(dataset, shuffle=False, verbose=0, callbacks=list(callbacks)).history


@pytest.mark.slow
@pytest.mark.parametrize("replicas", [1, 2])
def test_nonfinite_steps_change_nothing(strategy_of, replicas, capsys):
    # With two replicas, only one of them has a NaN.
    with strategy_of(replicas).scope():
        model, clean = (build(SGD(0.1, momentum=0.9, use_ema=True, global_clipnorm=1.0)) for _ in range(2))
    history = fit(model, batches(bad=(0, 3, 4)), NonfiniteSteps(3))
    assert history["nonfinite_steps"] == [3] and int(model.optimizer.iterations.numpy()) == 8
    warn_of_skipped_steps(model)
    assert "3 of 8 steps" in capsys.readouterr().err
    good = [1, 2, 5, 6, 7]
    fit(clean, tuple(part[good] for part in batches()))
    one, other = (each.variables + each.optimizer.variables[1:-2] for each in (model, clean))
    for value, reference in zip(one, other, strict=True):
        np.testing.assert_array_equal(value.numpy(), reference.numpy())


@pytest.fixture
def checkpointed(tmp_path):
    """A model, and callbacks that stop after three steps and save every one."""
    model, checkpoints = build(AdamW(0.1, global_clipnorm=1.0)), Checkpoints(tmp_path, every_steps=1)
    checkpoints.restore(model)
    yield model, [NonfiniteSteps(3, checkpoints), checkpoints]
    checkpoints.release()


def test_too_many_nonfinite_steps_in_a_row_stop_the_run(checkpointed, tmp_path):
    model, callbacks = checkpointed
    with pytest.raises(FloatingPointError, match=f"3 steps in a row, up to step 7(.|\n)*{tmp_path}/step-4"):
        fit(model, batches(bad=(1, 4, 5, 6, 7)), *callbacks)
    assert {file.name for file in tmp_path.glob("*.index")} == {"step-1.index", "step-3.index", "step-4.index"}
    with pytest.raises(FloatingPointError, match="No checkpoint"):
        fit(build(SGD(0.1)), batches(bad=(0, 1)), NonfiniteSteps(2))


def test_nonfinite_validation_stops_the_run(checkpointed, tmp_path):
    model, callbacks = checkpointed
    inputs, targets = batches()
    data, bad = (tf.data.Dataset.from_tensor_slices(part) for part in ((inputs, targets), (inputs * np.nan, targets)))
    model.fit(data, validation_data=data, shuffle=False, verbose=0, callbacks=callbacks)
    with pytest.raises(FloatingPointError, match=rf"step 16 .*\(val_loss nan\)(.|\n)*{tmp_path}/step-16"):
        model.fit(data, validation_data=bad, shuffle=False, verbose=0, callbacks=callbacks)


@pytest.mark.parametrize("value", [np.nan, np.inf, -np.inf])
def test_nonfinite_weights_and_metrics_raise(value):
    model = build(SGD(0.1))
    check_finite_weights(model, "The EMA")
    model.layers[0].kernel.assign([[1, 2], [3, value], [5, 6]])
    with pytest.raises(FloatingPointError, match="The EMA.*kernel"):
        check_finite_weights(model, "The EMA")
    check_finite_metrics({"loss": 1.0, "top1": 0}, "x")
    with pytest.raises(FloatingPointError, match=rf"x .*\(loss {value}\)"):
        check_finite_metrics({"loss": np.float32(value), "top1": 1.0}, "x")


def test_metrics_of_an_epoch_with_skipped_steps():
    model = build(SGD(0.1))
    history = {"loss": [2.0, np.nan], "learning_rate": [0.2, 0.1], "nonfinite_steps": [1, 2]}
    for consecutive in (0, 1):  # one step of the epoch was skipped, which may be due to its images
        model.optimizer.consecutive_nonfinite_steps.assign(consecutive)
        assert finite_epoch_metrics(history, model) == {"learning_rate": 0.1, "nonfinite_steps": 2}
    # No step was skipped, or the last two.
    for consecutive, nonfinite in ((1, [2, 2]), (2, [1, 2])):
        model.optimizer.consecutive_nonfinite_steps.assign(consecutive)
        with pytest.raises(FloatingPointError, match="last epoch"):
            finite_epoch_metrics({**history, "nonfinite_steps": nonfinite}, model)
