"""Training and evaluation of the models of recipes, for use in Python."""

import keras

from keras_vit.recipes.data import ImageDataset
from keras_vit.recipes.recipe import SelfSupervised, Supervised
from keras_vit.recipes.runs import loop
from keras_vit.recipes.runs.open_run import open_run
from keras_vit.recipes.runs.run_data import RunData
from keras_vit.recipes.runs.self_supervised import Pretraining, SelfSupervisedModel
from keras_vit.recipes.runs.supervised import ClassifierTraining, evaluate
from keras_vit.recipes.training.replacements import Replacements

__all__ = ["count_steps", "evaluate", "pretrain", "train"]


def pretrain(
    recipe: SelfSupervised, callbacks=(), *, optimizer=None, augment=None
) -> tuple[SelfSupervisedModel, loop.History]:
    """Pre-training without labels: masked patches, or a masked autoencoder.

    Args:
        callbacks: Additional Keras callbacks. With an EMA, it is the weights that they see when an epoch ends.
        optimizer, augment: See `train`.

    Returns:
        The trained model, whose `vit` is the model without a head, and the history of `fit`.

    Raises:
        ValueError, OSError: The recipe cannot be trained; raised before training starts.
        FloatingPointError: Gradients or weights are not finite.
    """
    with open_run(recipe, replacements=Replacements(optimizer, augment=augment)) as run:
        training = Pretraining(run)
        return training.model, loop.fit(run, training, callbacks)


def train(
    recipe: Supervised, start=None, callbacks=(), *, optimizer=None, loss=None, augment=None
) -> tuple[keras.Model, loop.History]:
    """Trains a classifier. docs/own_recipe.md has examples of all arguments.

    A resumed run requires the `optimizer`, `loss` and `augment` of its beginning, which run.json names.

    Args:
        start: A model to start from; by default, the recipe's weights or, without any, random weights.
        callbacks: Additional Keras callbacks. With an EMA, it is the weights that they see when an epoch ends.
        optimizer: Class of Keras optimizers with an `update_step`, or function that creates one, instead of
            `recipe.optimizer.name`. It is called with the recipe's `learning_rate` (a schedule), `weight_decay`,
            `global_clipnorm`, `use_ema` and, with an EMA, `ema_momentum`; its step is that of `ReplicaInvariant`.
        loss: Keras loss of logits, name, or function (labels, logits) -> (B,), instead of `recipe.loss`. Labels are
            (B, C) float32: zeros and ones, fractions after mixup. A loss that fails with these gets (B,) int64.
        augment: Function (image, seed) -> image of TensorFlow operations, or a Keras layer, after the recipe's own
            augmentation: of (H, W, 3) float32 in [0, 255], with a (2,) int32 seed for `tf.image.stateless_random_...`.
            Keras's random layers draw from that seed, too. Mixup, CutMix and erasing come later.

    Returns:
        The trained model with the names of the dataset's classes, compiled for `evaluate`, and the history of `fit`.

    Raises:
        ValueError, OSError: The recipe cannot be trained; raised before training starts.
        FloatingPointError: Gradients or weights are not finite.
    """
    with open_run(recipe, start, Replacements(optimizer, loss, augment)) as run:
        training = ClassifierTraining(run)
        history = loop.fit(run, training, callbacks)
        return training.result, history


def count_steps(recipe: Supervised, dataset: ImageDataset) -> int:
    """Steps of a run: `total_steps`, or those of `total_epochs`."""
    return RunData(recipe, dataset).total_steps
