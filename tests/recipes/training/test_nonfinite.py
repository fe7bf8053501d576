import keras
import numpy as np
import pytest
import tensorflow as tf

from keras_vit.recipes.training.checkpoints import Checkpoints
from keras_vit.recipes.training.nonfinite import NonfiniteSteps
from keras_vit.recipes.training.optimizers import SGD, AdamW


def batches(bad=(), steps=8):
    """Batches of 4 images; in the steps `bad`, one image of the second half has a NaN."""
    random = np.random.default_rng(0)
    inputs, targets = random.standard_normal((steps, 4, 3)), random.standard_normal((steps, 4, 2))
    for step in bad:
        inputs[step, 3, 0] = np.nan
    return inputs.astype("float32"), targets.astype("float32")


def build(optimizer, replicas=1):
    strategy = tf.distribute.get_strategy()
    if replicas == 2:
        reduce = tf.distribute.ReductionToOneDevice()
        strategy = tf.distribute.MirroredStrategy(["CPU:0", "CPU:1"], cross_device_ops=reduce)
    with strategy.scope():
        model = keras.Sequential([keras.Input((3,)), keras.layers.Dense(2, kernel_initializer="ones")])
        model.compile(optimizer(), "mse", jit_compile=False)
        model.optimizer.build(model.trainable_variables)
    return model


def fit(model, data, *callbacks):
    dataset = tf.data.Dataset.from_tensor_slices(data)
    return model.fit(dataset, shuffle=False, verbose=0, callbacks=list(callbacks)).history


@pytest.mark.slow
@pytest.mark.parametrize("replicas", [1, 2])
def test_nonfinite_steps_change_nothing(replicas):
    # With two replicas, only one of them has a NaN.
    model = build(lambda: SGD(0.1, momentum=0.9, use_ema=True, global_clipnorm=1.0), replicas)
    history = fit(model, batches(bad=(0, 3, 4)), NonfiniteSteps(3))
    assert history["nonfinite_steps"] == [3] and int(model.optimizer.iterations.numpy()) == 8
    clean = build(lambda: SGD(0.1, momentum=0.9, use_ema=True, global_clipnorm=1.0), replicas)
    inputs, targets = batches()
    good = [1, 2, 5, 6, 7]
    fit(clean, (inputs[good], targets[good]))
    for one, other in zip(
        model.variables + model.optimizer.variables[1:-2], clean.variables + clean.optimizer.variables[1:-2]
    ):
        np.testing.assert_array_equal(one.numpy(), other.numpy())


def test_too_many_nonfinite_steps_in_a_row_stop_the_run(tmp_path):
    model = build(lambda: AdamW(0.1, global_clipnorm=1.0))
    checkpoints = Checkpoints(tmp_path, every_steps=1)
    checkpoints.restore(model)
    with pytest.raises(FloatingPointError) as stopped:
        fit(model, batches(bad=(1, 4, 5, 6, 7)), NonfiniteSteps(3, checkpoints), checkpoints)
    message = str(stopped.value)
    assert "gradients of 3 steps in a row, up to step 7" in message and "Lower optimizer.learning_rate" in message
    assert f"Last checkpoint: {tmp_path}/step-4." in message
    assert {file.name for file in tmp_path.glob("*.index")} == {"step-1.index", "step-3.index", "step-4.index"}
    checkpoints.release()


def test_message_without_checkpoints():
    with pytest.raises(FloatingPointError, match="No checkpoint has been saved"):
        fit(build(lambda: SGD(0.1)), batches(bad=(0, 1)), NonfiniteSteps(2))
