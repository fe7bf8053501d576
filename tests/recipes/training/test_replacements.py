"""A user's optimizer, loss and augmentation in a recipe: compared with plain Keras, resumed, refused."""

import json
from dataclasses import replace
from functools import partial

import keras
import numpy as np
import pytest
import tensorflow as tf
from checkpointed_training import assert_variables, at, everything

from keras_vit.recipes import evaluate, pretrain, train
from keras_vit.recipes.data import open_dataset, training_batches, training_pixels
from keras_vit.recipes.recipe import Augment, Optimizer
from keras_vit.recipes.recipe.errors import RecipeError
from keras_vit.recipes.training.model import adapt_model, build_model
from keras_vit.recipes.training.optimizers import WarmupDecay
from keras_vit.recipes.training.replacements import fitting_loss

FOCAL = keras.losses.CategoricalFocalCrossentropy(from_logits=True)
SPARSE = keras.losses.SparseCategoricalCrossentropy(from_logits=True)
AFTER = "on_train_batch_end"


@keras.saving.register_keras_serializable("test")
class Signs(keras.optimizers.Optimizer):
    """signSGD with momentum."""

    def __init__(self, learning_rate, momentum=0.9, **options):
        super().__init__(learning_rate, **options)
        self.momentum = momentum

    def build(self, variables):
        super().build(variables)
        self.means = [self.add_variable_from_reference(variable, name="mean") for variable in variables]

    def update_step(self, gradient, variable, learning_rate):
        mean = self.means[self._get_variable_index(variable)]
        self.assign(mean, self.momentum * mean + gradient)
        self.assign_sub(variable, keras.ops.sign(mean) * keras.ops.cast(learning_rate, variable.dtype))

    def get_config(self):
        return {**super().get_config(), "momentum": self.momentum}


def squares(labels, logits):
    return keras.ops.sum(keras.ops.square(labels - logits), axis=-1)


@pytest.mark.slow
def test_training_equals_plain_keras(supervised):
    """The steps of an optimizer of Keras in its own `fit`, with the recipe's schedule; labels are vectors."""
    optimizer = Optimizer("sgd", 0.01, warmup_steps=1, global_clipnorm=None)
    recipe = replace(supervised, optimizer=optimizer, total_steps=3)
    rmsprop = partial(keras.optimizers.RMSprop, rho=0.8, momentum=0.5)
    start = build_model(recipe.architecture, recipe.data, recipe.run)
    ours, _ = train(recipe, start, optimizer=rmsprop, loss=squares)
    theirs = adapt_model(start, recipe, 10)
    theirs.compile(rmsprop(WarmupDecay(0.01, "cosine", 1, 3)), squares)
    batches = training_batches(recipe.data, open_dataset(recipe.data), recipe.run.seed)
    for images, numbers in batches.take(3).as_numpy_iterator():
        theirs.train_on_batch(images, np.eye(10, dtype="float32")[numbers])
    for first, second in zip(ours.get_weights(), theirs.get_weights(), strict=True):
        np.testing.assert_allclose(first, second, atol=1e-6)
    assert np.abs(ours.head.kernel).max() > 1e-3


@pytest.mark.slow
def test_interrupted_equals_uninterrupted(supervised, tmp_path):
    data = replace(supervised.data, validation_split="test[:20]", augment=Augment(mixup_alpha=0.2))
    optimizer = Optimizer("adamw", 0.01, warmup_steps=1, weight_decay=0.1, ema_momentum=0.9)
    architecture = replace(supervised.architecture, dropout=0.1)
    recipe = replace(supervised, architecture=architecture, data=data, optimizer=optimizer, total_steps=6)
    layers = keras.Sequential([keras.layers.RandomRotation(0.1), keras.layers.RandomBrightness(0.2)])
    own = {"optimizer": Signs, "loss": FOCAL, "augment": layers}
    whole, history = train(recipe, **own)
    assert "val_top1" in history
    run = replace(supervised.run, folder=str(tmp_path / "run"), resume=True, checkpoint_steps=3)
    recipe = replace(recipe, run=run)
    with pytest.raises(RuntimeError):
        train(recipe, callbacks=[at(5, lambda: (_ for _ in ()).throw(RuntimeError), AFTER)], **own)
    replaced = json.loads((tmp_path / "run" / "run.json").read_text())["replaced"]
    names = replaced["optimizer"], replaced["optimizer.momentum"], replaced["loss"], replaced["augment"]
    assert names == ("Signs", 0.9, "CategoricalFocalCrossentropy", "Sequential")
    for changed in ({}, {**own, "optimizer": partial(Signs, momentum=0.5)}, {**own, "augment": None}):
        with pytest.raises(ValueError, match=r"another (loss|optimizer\.momentum|augment): .* \(there\)"):
            train(recipe, **changed)
    resumed, _ = train(recipe, **own)
    assert_variables(resumed, everything(whole))
    resumed.save(tmp_path / "model.keras")
    loaded = keras.saving.load_model(tmp_path / "model.keras")
    assert type(loaded.optimizer) is Signs
    for variable, expected in zip(loaded.optimizer.variables, whole.optimizer.variables):
        np.testing.assert_array_equal(variable, expected)
    found, expected = (evaluate(model, data, "test[:20]") for model in (loaded, whole))
    assert found == pytest.approx(expected, rel=1e-6)


def test_augmentation_is_of_each_image_and_of_the_seed(masked):
    data = replace(masked.data, augment=Augment(repeats=2))
    dataset = open_dataset(data)
    pixels = partial(training_pixels, data, dataset, 0)

    def first(**options):
        return next(pixels(**options).as_numpy_iterator())[0]

    plain = first()
    np.testing.assert_allclose(first(augment=lambda image, seed: 255 - image), 255 - plain, atol=1e-4)
    for noise in (
        lambda image, seed: image + tf.random.stateless_uniform((), seed),
        keras.layers.RandomBrightness(0.5),
    ):
        np.testing.assert_array_equal(first(augment=noise, start_step=1), list(pixels(augment=noise).take(2))[1][0])
        bright = first(augment=noise).mean((1, 2, 3))
        assert len(set(np.round(bright[::2] - bright[1::2], 4))) == 8  # of two copies of eight images
    with pytest.raises(ValueError, match=r"return an image \(8, 8, 3\)"):
        first(augment=lambda image, seed: image[:4])


@pytest.mark.parametrize(
    "own,reason",
    [
        ({"optimizer": keras.optimizers.Lion(1e-3)}, r"optimizer=keras\.optimizers\.Lion"),
        ({"optimizer": "lion"}, "Received: 'lion'"),
        ({"optimizer": partial(keras.optimizers.Lion, learning_rate=1e-3)}, "recipe sets .*Received: learning_rate"),
        ({"optimizer": lambda learning_rate: None}, r"takes the recipe's learning_rate, .*lambda \*\*recipe"),
        ({"optimizer": lambda **recipe: "lion"}, "returned: 'lion'"),
        ({"optimizer": keras.optimizers.Nadam}, "`update_step`.* Received: Nadam"),
        ({"augment": "flip"}, "Received: 'flip'"),
        ({"loss": lambda labels, logits: logits}, r"its shape is \(3, 10\)"),
        ({"loss": keras.losses.CategoricalCrossentropy()}, "takes probabilities"),
    ],
)
def test_what_cannot_replace_a_part_of_a_recipe(own, reason, supervised):
    with pytest.raises(ValueError, match=reason):
        train(supervised, **own)


def test_losses_of_labels(supervised):
    """Vectors where the loss takes them, else numbers, which mixup does not leave."""
    labels, logits = np.array([1, 0]), np.array([[0.0, 1.0, 2.0], [3.0, 0.0, 1.0]], "float32")
    for loss in (FOCAL, SPARSE):
        fitting = fitting_loss(loss, 3, only_vectors=False)
        expected = loss(np.eye(3)[labels] if loss is FOCAL else labels, logits)
        np.testing.assert_allclose(fitting(labels, logits), expected, rtol=1e-6)
    with pytest.raises(ValueError, match=r"labels \(B, C\) of logits"):
        fitting_loss(SPARSE, 3, only_vectors=True)
    with pytest.raises(RecipeError) as error:
        train(replace(supervised, label_smoothing=0.1), loss=FOCAL)
    assert error.value.received == {"label_smoothing": 0.1}


@pytest.mark.extended
def test_two_replicas_equal_one_device(supervised, masked, logical_cpus):
    logical_cpus(2)

    def weights(function, recipe, strategy, **own):
        return function(replace(recipe, run=replace(recipe.run, strategy=strategy)), **own)[0].get_weights()

    still = replace(masked, architecture=replace(masked.architecture, dropout=0.0))
    own = {"optimizer": keras.optimizers.Adagrad, "augment": keras.layers.RandomBrightness(0.2)}
    for function, recipe, more in ((train, supervised, {"loss": FOCAL}), (pretrain, still, {})):
        one, two = (weights(function, recipe, strategy, **own, **more) for strategy in ("one-device", "mirrored"))
        for first, second in zip(one, two, strict=True):
            np.testing.assert_allclose(first, second, atol=1e-5)
