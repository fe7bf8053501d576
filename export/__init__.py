"""Export to SavedModel, TFLite, ONNX and web pages, and the check that the files compute what Keras computes.

Audit of a .tflite file for accelerators: `keras_vit.export.audit`. Latency and memory: `keras_vit.export.benchmark`.
Names are imported on first use, as `__init__.pyi` lists them: importing this package loads neither TensorFlow nor
LiteRT.
"""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
