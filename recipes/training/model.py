"""Builds, loads, freezes and compiles the models of recipes. Call these inside the strategy's scope."""

import os
import tempfile
import warnings

import keras
import tensorflow as tf

import keras_vit
from keras_vit import AxialResNet, BiT, VisionTransformer
from keras_vit.images.pixel_range import PixelRangeWarning, scaling
from keras_vit.keras_internals import set_trainable
from keras_vit.messages import error_summary
from keras_vit.models.copying import copy_weights
from keras_vit.models.image_model import ImageModel
from keras_vit.models.load import ImageSizeWarning
from keras_vit.recipes.data.transforms import evaluation_preprocessing
from keras_vit.recipes.recipe import USED_WITH_WEIGHTS, Architecture, Data, Distillation, Recipe, Run, Supervised
from keras_vit.recipes.recipe.checks import check_patches
from keras_vit.recipes.recipe.errors import RecipeError
from keras_vit.recipes.recipe.training import BIT, check_bit_fields
from keras_vit.recipes.training.initialization import initialize
from keras_vit.recipes.training.optimizers import build_optimizer
from keras_vit.recipes.training.replacements import NOTHING_REPLACED
from keras_vit.variants import BIT_SIZES, parse_variant

SIZES = ("depth", "width", "mlp_dim", "num_heads")


def build_model(architecture: Architecture, data: Data, run: Run, num_classes: int = 0, **more):
    """Builds the recipe's model with random weights; `more` are arguments of `VisionTransformer`.

    Raises:
        ValueError: An unknown variant, or sizes that are not divisible.
    """
    common = {"num_classes": num_classes, **_common(data, run), **more}
    if architecture.is_bit:
        _check_no_remat(run)
        stages, width_factor = BIT_SIZES[architecture.variant.removeprefix(BIT)]
        return BiT(stages=stages, width_factor=width_factor, name="bit", **common)
    arguments = parse_variant(architecture.variant)
    arguments |= {name: size for name in SIZES if (size := getattr(architecture, name)) is not None}
    return VisionTransformer(
        **arguments,
        **common,
        pooling=architecture.pooling,
        position_embedding=architecture.position_embedding,
        position_placement=architecture.position_placement,
        prefix_positions=architecture.prefix_positions,
        qk_norm=architecture.qk_norm,
        gelu=architecture.gelu,
        layer_scale=architecture.layer_scale,
        representation_size=architecture.representation_size if num_classes else None,
        **_training_arguments(architecture, run),
        name="vit",
    )


def build_classifier(recipe: Supervised, num_classes: int, start=None):
    """The model of a recipe: of a model to start from, of the recipe's weights, or with random ones."""
    if start is not None:
        model = adapt_model(start, recipe, num_classes)
    elif recipe.weights:
        model = load_model(recipe.weights, recipe, num_classes)
    else:
        has_token = isinstance(recipe, Distillation) and recipe.distillation_token
        more = {"distillation": True} if has_token else {}
        model = build_model(recipe.architecture, recipe.data, recipe.run, num_classes, **more)
        initialize(model, recipe.architecture.initialization, recipe.run.seed)
    if recipe.trainable_blocks is not None:
        train_last_blocks(model, recipe.trainable_blocks)
    return model


def check_trainable(model):
    """Raises ValueError for models that recipes do not train."""
    if not isinstance(model, ImageModel) or isinstance(model, AxialResNet):
        raise ValueError(
            "Recipes train a VisionTransformer, a BiT or another model as a keras_vit.ImageClassifier. Received: "
            f"{model.name}, a {type(model).__name__}. Train it with model.fit."
        )
    if model.channels != 3:
        raise ValueError(
            f"Recipes train on RGB images. Received: {model.name}, of {model.channels} channels. Train it with "
            "model.fit, or load the weights with channels=3."
        )


def adapt_model(model, recipe: Supervised, num_classes: int):
    """A copy of a trained model for a recipe: a new head of zeros, resampled positions, the recipe's dropout.

    Args:
        model: A `VisionTransformer`, `BiT` or `ImageClassifier`.
        recipe: Its `keep_head` copies the head too if the model has `num_classes` classes, as facebookresearch/deit
            (main.py) does.
    """
    check_trainable(model)
    data, run = recipe.data, recipe.run
    trained = model.preprocessing
    if trained.origin != "assumed" and (trained.mean, trained.std) != (data.mean, data.std):
        raise RecipeError(
            f"The weights were trained on pixels scaled by {scaling(trained)}.",
            {"data.mean": data.mean, "data.std": data.std},
            {"data.mean": trained.mean, "data.std": trained.std},
        )
    changes = {"num_classes": num_classes, **_common(data, run)}
    if trained.pixel_range and trained.pixel_range != data.pixel_range:
        raise RecipeError(
            "The weights were trained on images of 16 bits with another range of pixels.",
            {"data.pixel_range": data.pixel_range},
            {"data.pixel_range": trained.pixel_range},
        )
    is_vit = isinstance(model, VisionTransformer)
    if not is_vit:
        _check_no_remat(run)
        check_bit_fields(recipe.architecture, USED_WITH_WEIGHTS)
    else:
        if model.image_size != data.input_size:
            check_patches(data, model.patch_size)
            model = model.resized(data.image_size, recipe.resample, name=model.name)
        changes |= _training_arguments(recipe.architecture, run)
    skip: tuple[str, ...] = ()
    if not recipe.keep_head or model.num_classes != num_classes:
        skip = model.head_layers
        changes |= {"class_names": None, **model.head_fields}
    if is_vit:
        changes["projection"] = False  # of a kept head, too: it learns classes
    adapted = type(model).from_config({**model.get_config(), **changes, "inner_layers": {}, "frozen": ()})
    set_trainable(adapted, True)
    copy_weights(model, adapted, skip)
    return adapted


def load_model(weights: str, recipe: Supervised, num_classes: int):
    """Loads a checkpoint, by name or from a file (local or on gs://), for a recipe; see `adapt_model`."""
    with tempfile.TemporaryDirectory() as folder:
        if "://" in weights:
            local = os.path.join(folder, os.path.basename(weights))
            _download(weights, local)
            weights = local
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", PixelRangeWarning)
            warnings.simplefilter("ignore", ImageSizeWarning)  # the recipe determines it
            loaded = keras_vit.load(weights, **({} if recipe.keep_head else {"num_classes": 0}))
    if loaded.preprocessing.origin == "assumed":
        warnings.warn(_assumption(weights, loaded.preprocessing, recipe.data), PixelRangeWarning, stacklevel=2)
    return adapt_model(loaded, recipe, num_classes)


def _assumption(weights, probable, data) -> str:
    unstated = f"{os.path.basename(weights)} does not state how its pixels are scaled."
    if (probable.mean, probable.std) == (data.mean, data.std):
        return f"{unstated} Assumed, as in this training: {scaling(probable)}."
    return (
        f"{unstated} Probably: {scaling(probable)}. This training: {scaling(data)}. To train as the weights probably "
        "were, set data.mean and data.std to these."
    )


def _download(remote, local):
    try:
        tf.io.gfile.copy(remote, local)
    except tf.errors.OpError as error:
        raise OSError(
            f"The weights {remote} cannot be read: {error_summary(error)}. Expected a single file."
        ) from error


def _common(data, run):
    preprocessing = evaluation_preprocessing(data).get_config()
    return {"image_size": data.image_size, "preprocessing": preprocessing, "dtype": run.precision}


def _training_arguments(architecture, run):
    return {
        "dropout": architecture.dropout,
        "stochastic_depth": architecture.stochastic_depth,
        "patch_dropout": architecture.patch_dropout,
        "remat": run.remat,
        "seed": run.seed,
    }


def _check_no_remat(run):
    if run.remat:
        raise RecipeError(
            "Only a VisionTransformer has blocks to recompute.", {"run.remat": run.remat}, {"run.remat": None}
        )


def train_last_blocks(model, count: int):
    """Freezes all of a model before its last Transformer blocks; compile it afterwards.

    The backward pass ends at the first of these blocks: with 0, a step costs little more than a prediction.

    Args:
        model: A `VisionTransformer`; others only for 0.
        count: Number of blocks to train, with the normalization, pooling and head after them; with 0 the head alone.
    """
    depth = getattr(model.config, "depth", 0)
    if not count and not depth:
        for layer in model.layers:
            layer.trainable = layer is model.head
        return
    if count > depth:
        raise RecipeError(
            f"{model.name} has {depth} Transformer blocks. None trains all of it.",
            {"trainable_blocks": count},
            [{"trainable_blocks": depth}, {"trainable_blocks": None}],
        )
    model.freeze_encoder(count)


def freeze_pooling(vit):
    """Freezes what pre-training does not call: Keras on JAX decays trainable weights that have no gradients, too.

    Raises:
        ValueError: The model has a head, which would not be trained.
    """
    if vit.head or vit.pre_logits:
        raise ValueError(f"Expected a model without a head, but {vit.name} has one. Pass vit.with_head(0).")
    for layer in (vit.pooling, vit.pooled_norm):
        if layer is not None:
            layer.trainable = False


def optimizer_arguments(recipe: Recipe, total_steps: int, model, replacements=NOTHING_REPLACED) -> dict:
    """Arguments of `compile`: the optimizer of a recipe, for the trainable weights of a model."""
    loss_scaling = recipe.run.precision == "mixed_float16"
    optimizer = build_optimizer(recipe.optimizer, total_steps, model, loss_scaling, replacements)
    if recipe.run.shard_optimizer and (distribution := keras.distribution.distribution()):
        optimizer.mesh = distribution.device_mesh.backend_mesh
    # Keras's scaling would apply an optimizer inside of another, whose step, counters and averages we read.
    return {"optimizer": optimizer, "auto_scale_loss": False}
