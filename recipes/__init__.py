"""Training of models: recipes, data, optimizers, strategies, checkpoints, evaluation. Example::

    from keras_vit.recipes import RECIPES, run

    metrics = run(RECIPES["digits-finetune"])

One run in three files: `run_recipe` (train, evaluate, write the results), `fit` (data, model and strategy),
`training.loop` (checkpoints, callbacks and `model.fit`).

Names are imported from their modules on first use, so importing this package imports no TensorFlow.
"""

import importlib

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
