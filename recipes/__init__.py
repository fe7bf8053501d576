"""Training of models: recipes, data, optimizers, strategies, checkpoints, evaluation. Example::

    from keras_vit.recipes import RECIPES, run

    metrics = run(RECIPES["digits-finetune"])

One run in three files: `run_recipe` (train, evaluate, write the results), `fit` (data, model and strategy),
`training.loop` (checkpoints, callbacks and `model.fit`).

Names are imported from their modules on first use, so importing this package imports no TensorFlow.
"""

import importlib
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from keras_vit.recipes.configs import RECIPES as RECIPES
    from keras_vit.recipes.configs import SWEEPS as SWEEPS
    from keras_vit.recipes.data import evaluation_batches as evaluation_batches
    from keras_vit.recipes.data import open_dataset as open_dataset
    from keras_vit.recipes.data import training_batches as training_batches
    from keras_vit.recipes.evaluation.classification import evaluate_classifier as evaluate_classifier
    from keras_vit.recipes.evaluation.few_shot import FewShot as FewShot
    from keras_vit.recipes.evaluation.few_shot import few_shot as few_shot
    from keras_vit.recipes.evaluation.vtab import run_vtab as run_vtab
    from keras_vit.recipes.fit import evaluate as evaluate
    from keras_vit.recipes.fit import pretrain as pretrain
    from keras_vit.recipes.fit import train as train
    from keras_vit.recipes.learning_rate_sweep import Sweep as Sweep
    from keras_vit.recipes.learning_rate_sweep import sweep as sweep
    from keras_vit.recipes.recipe import Architecture as Architecture
    from keras_vit.recipes.recipe import Augment as Augment
    from keras_vit.recipes.recipe import Data as Data
    from keras_vit.recipes.recipe import Distillation as Distillation
    from keras_vit.recipes.recipe import MaskedPatch as MaskedPatch
    from keras_vit.recipes.recipe import Optimizer as Optimizer
    from keras_vit.recipes.recipe import Run as Run
    from keras_vit.recipes.recipe import Supervised as Supervised
    from keras_vit.recipes.recipe_file import read_recipe as read_recipe
    from keras_vit.recipes.recipe_file import write_recipe as write_recipe
    from keras_vit.recipes.run_recipe import run as run
    from keras_vit.recipes.run_recipe import run_unless_finished as run_unless_finished
    from keras_vit.recipes.training.model import build_model as build_model

_MODULES = {
    "configs": ("RECIPES", "SWEEPS"),
    "recipe": ("Architecture", "Augment", "Data", "Optimizer", "Run", "MaskedPatch", "Supervised", "Distillation"),
    "recipe_file": ("read_recipe", "write_recipe"),
    "run_recipe": ("run", "run_unless_finished"),
    "fit": ("pretrain", "train", "evaluate"),
    "learning_rate_sweep": ("Sweep", "sweep"),
    "data": ("open_dataset", "training_batches", "evaluation_batches"),
    "evaluation.classification": ("evaluate_classifier",),
    "evaluation.few_shot": ("FewShot", "few_shot"),
    "evaluation.vtab": ("run_vtab",),
    "training.model": ("build_model",),
}
_MODULE_OF = {name: module for module, names in _MODULES.items() for name in names}
__all__ = sorted(_MODULE_OF)


def __getattr__(name: str):
    if name not in _MODULE_OF:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(importlib.import_module(f"{__name__}.{_MODULE_OF[name]}"), name)


def __dir__():
    return sorted({*globals(), *__all__})
