"""The model that `keras-vit inspect` inspects, with the head or decoder of its pre-training if it has one."""

from pathlib import Path
from typing import NamedTuple

from keras_vit import VisionTransformer
from keras_vit.recipes.pretraining.masked_autoencoder import MaskedAutoencoderModel
from keras_vit.recipes.pretraining.masked_patch import MaskedPatchModel
from keras_vit.recipes.recipe import Data, MaskedAutoencoder, MaskedPatch, SelfSupervised
from keras_vit.recipes.runs.folder import RECIPE, find_checkpoints
from keras_vit.recipes.runs.self_supervised import SelfSupervisedModel
from keras_vit_cli.inputs import keras_class
from keras_vit_cli.preprocessing_flags import AS_SAVED, LoadingFlags


class InspectedModel(NamedTuple):
    """A model and what is known about its training.

    Attributes:
        vit: The `VisionTransformer`.
        masked_model: The `MaskedPatchModel` or `MaskedAutoencoderModel` around it, or None.
        recipe: The recipe of that model, which specifies how images are masked, or None.
    """

    vit: VisionTransformer
    masked_model: SelfSupervisedModel | None = None
    recipe: SelfSupervised | None = None


def open_model(weights: str, preparation: LoadingFlags = AS_SAVED) -> InspectedModel:
    """Opens anything that `keras_vit.load` accepts, the .keras file of a model without labels, or a run's folder.

    Head and decoder of a run without labels are only in its checkpoints: its model.keras is meant for fine-tuning.

    Raises: ValueError: The model is a ResNet, or another preparation is given for one that its recipe states; also
    errors of `keras_vit.load`.
    """
    path = Path(weights)
    if (path / RECIPE).is_file():
        return _open_run(path, preparation)
    if keras_class(path) in (MaskedPatchModel.__name__, MaskedAutoencoderModel.__name__):
        import keras

        preparation.check_stated(weights)
        masked_model = keras.saving.load_model(path, compile=False)
        return InspectedModel(masked_model.vit, masked_model, _recipe_of(masked_model))
    model = preparation.load(weights)
    if model.channels != 3:
        raise ValueError(
            f"The report shows RGB images. Received: {weights}, of {model.channels} channels. Use the functions of "
            "keras_vit.inspect."
        )
    if not isinstance(model, VisionTransformer):
        raise ValueError(
            f"Expected a VisionTransformer. Received: {weights}, a {type(model).__name__}, which is a ResNet and has "
            "no attention between patches. To compare features of a ResNet: "
            "keras_vit.inspect.nearest_neighbors(model.features(x), model.features(y))."
        )
    return InspectedModel(model)


def _open_run(path, preparation) -> InspectedModel:
    from keras_vit.recipes.recipe.file import read_run
    from keras_vit.recipes.run_recipe import MODEL
    from keras_vit.recipes.runs.self_supervised import load_self_supervised

    recipe = read_run(path)
    if recipe.has_labels or not find_checkpoints(path):
        return open_model(str(path / MODEL), preparation)
    preparation.check_stated(str(path))
    masked_model = load_self_supervised(recipe, path)
    return InspectedModel(masked_model.vit, masked_model, recipe)


def _recipe_of(masked_model) -> SelfSupervised:
    """A recipe as far as the model specifies it; fractions are the defaults."""
    preprocessing = masked_model.vit.preprocessing
    data = Data(mean=preprocessing.mean, std=preprocessing.std)
    if isinstance(masked_model, MaskedAutoencoderModel):
        return MaskedAutoencoder(data=data, normalize_targets=masked_model.normalize_targets)
    return MaskedPatch(data=data, target=masked_model.target)
