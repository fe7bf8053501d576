"""Datasets and input pipelines: `open_dataset` opens one by name, `training_batches` and others read it.

From a name to batches: datasets.py, pipeline.py, transforms.py. Names are imported on first use, as `__init__.pyi`
lists them: a check of a folder's layout loads no TensorFlow.
"""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
