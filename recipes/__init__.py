"""Training of models: recipes, data, optimizers, strategies, checkpoints, evaluation. Example::

    from keras_vit.recipes import RECIPES, run

    metrics = run(RECIPES["digits-finetune"])

One run in four files: `run_recipe` (train, evaluate, write the results), `runs.open_run` (devices, folder, data),
`runs.supervised` (model and batches), `runs.loop` (checkpoints, callbacks and `model.fit`).

Names are imported on first use, as `__init__.pyi` lists them, so importing this package imports no TensorFlow.
"""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
