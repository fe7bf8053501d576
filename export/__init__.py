"""Export to SavedModel, TFLite, ONNX and web pages, and the check that the files compute what Keras computes.

Audit of a .tflite file for accelerators: `keras_vit.export.audit`. Latency and memory: `keras_vit.export.benchmark`.
Names are imported on first use: importing this package loads neither TensorFlow nor LiteRT.
"""

import importlib
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from keras_vit.export.onnx import write_onnx as write_onnx
    from keras_vit.export.parity import Parity as Parity
    from keras_vit.export.parity import check_parity as check_parity
    from keras_vit.export.parity import parity_table as parity_table
    from keras_vit.export.saved_model import write_saved_model as write_saved_model
    from keras_vit.export.tflite.convert import FORMATS as FORMATS
    from keras_vit.export.tflite.convert import write_tflite as write_tflite
    from keras_vit.export.tflite.description import Description as Description
    from keras_vit.export.tflite.metadata import read_description as read_description
    from keras_vit.export.tflite.metadata import with_metadata as with_metadata
    from keras_vit.export.web.page import write_web_page as write_web_page

_MODULES = {
    "FORMATS": "tflite.convert",
    "Description": "tflite.description",
    "Parity": "parity",
    "check_parity": "parity",
    "parity_table": "parity",
    "read_description": "tflite.metadata",
    "with_metadata": "tflite.metadata",
    "write_onnx": "onnx",
    "write_saved_model": "saved_model",
    "write_tflite": "tflite.convert",
    "write_web_page": "web.page",
}
__all__ = list(_MODULES)


def __getattr__(name):
    if name not in _MODULES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    value = getattr(importlib.import_module(f"{__name__}.{_MODULES[name]}"), name)
    globals()[name] = value
    return value


def __dir__():
    return sorted({*globals(), *__all__})
