"""From a recipe's fields to a model; call these inside the strategy's scope."""

import os
import tempfile

import tensorflow as tf

import keras_vit
from keras_vit import BiT, Preprocessing, VisionTransformer
from keras_vit.images import patch_grid
from keras_vit.models.vit import HEADS
from keras_vit.recipes.recipe import Architecture, Data, Run
from keras_vit.variants import BIT_SIZES, parse_variant
from keras_vit.weights.transfer import copy_weights

BIT = "BiT-"
SIZES = ("depth", "width", "mlp_dim", "num_heads")


def build_model(architecture: Architecture, data: Data, run: Run, num_classes: int = 0, **more):
    """The recipe's model with random weights; `more` are arguments of `VisionTransformer`.

    Raises:
        ValueError: The variant is unknown, a BiT is asked for what it does not have, or sizes do not fit each other.
    """
    common = {"num_classes": num_classes, **_common(data, run), **more}
    if architecture.variant.startswith(BIT):
        _check_no_remat(run)
        return _bit(architecture, common)
    arguments = parse_variant(architecture.variant)
    arguments |= {name: size for name in SIZES if (size := getattr(architecture, name)) is not None}
    return VisionTransformer(
        **arguments,
        **common,
        pooling=architecture.pooling,
        position_embedding=architecture.position_embedding,
        representation_size=architecture.representation_size if num_classes else None,
        **_of_training(architecture, run),
        name="vit",
    )


def check_image_size(architecture: Architecture, data: Data):
    """Raises ValueError if the variant is unknown or its patches do not divide the images; builds nothing."""
    if not architecture.variant.startswith(BIT):
        patch_grid(data.image_size, parse_variant(architecture.variant)["patch_size"])


def adapt_model(model, architecture: Architecture, data: Data, run: Run, num_classes: int):
    """A copy of a trained model for another task: a new head of zeros, positions resized, dropout of the recipe.

    Raises:
        ValueError: The weights were trained on pixels of another scale than the recipe's, or the image does not fit.
    """
    wanted = model.preprocessing
    if (wanted.mean, wanted.std) != (data.mean, data.std):
        raise ValueError(
            f"These weights want pixels scaled by mean={wanted.mean} and std={wanted.std}, but the recipe has "
            f"mean={data.mean} and std={data.std}. Give the recipe's data those of the weights."
        )
    changes = {"num_classes": num_classes, **_common(data, run)}
    if isinstance(model, BiT):
        _check_no_remat(run)
        model = model.with_head(0)
    else:
        if model.image_size != (data.image_size, data.image_size):
            model = model.resized(data.image_size)
        changes |= _of_training(architecture, run) | {"representation_size": None}
    made = type(model).from_config({**model.get_config(), **changes})
    copy_weights(model, made, skip=("head",) if isinstance(model, BiT) else HEADS)
    return made


def load_model(weights: str, architecture: Architecture, data: Data, run: Run, num_classes: int):
    """A checkpoint, by name or file, which may be on gs://, for another task; see `adapt_model`."""
    with tempfile.TemporaryDirectory() as folder:
        if "://" in weights:
            local = os.path.join(folder, os.path.basename(weights))
            _copy(weights, local)
            weights = local
        loaded = keras_vit.load(weights, num_classes=0)
    return adapt_model(loaded, architecture, data, run, num_classes)


def _copy(remote, local):
    try:
        tf.io.gfile.copy(remote, local)
    except tf.errors.OpError as error:
        raise OSError(f"The weights {remote} cannot be read: {error.message}. They must be one file.") from error


def _common(data, run):
    preprocessing = Preprocessing(
        data.image_size,
        resize=data.evaluation_resize,
        crop_fraction=data.evaluation_crop,
        interpolation=data.interpolation,
        mean=data.mean,
        std=data.std,
    )
    return {"image_size": data.image_size, "preprocessing": preprocessing.get_config(), "dtype": run.precision}


def _of_training(architecture, run):
    return {
        "dropout": architecture.dropout,
        "stochastic_depth": architecture.stochastic_depth,
        "remat": run.remat,
        "seed": run.seed,
    }


def _check_no_remat(run):
    if run.remat:
        raise ValueError(f"A BiT has no Transformer blocks to compute again. Received: run.remat={run.remat!r}")


def _bit(architecture, arguments):
    size = architecture.variant.removeprefix(BIT)
    if size not in BIT_SIZES:
        known = ", ".join(BIT + name for name in BIT_SIZES)
        raise ValueError(f"Expected one of {known}. Received: {architecture.variant!r}")
    changed = [
        name
        for name in (*SIZES, "pooling", "representation_size", "position_embedding", "dropout", "stochastic_depth")
        if getattr(architecture, name) != getattr(Architecture(), name)
    ]
    if changed:
        raise ValueError(f"A BiT has no {', '.join(changed)}. Leave these fields of the architecture as they are.")
    stages, width_factor = BIT_SIZES[size]
    return BiT(stages=stages, width_factor=width_factor, name="bit", **arguments)
