"""Models for servers, phones and web pages, and the checks that they compute what Keras computes.

Imported as `keras_vit.export`. Op audit: `keras_vit.export.audit`; benchmark: `keras_vit.export.benchmark`.
"""

from keras_vit.export.onnx import write_onnx as write_onnx
from keras_vit.export.parity import Parity as Parity
from keras_vit.export.parity import check_parity as check_parity
from keras_vit.export.parity import parity_table as parity_table
from keras_vit.export.saved_model import write_saved_model as write_saved_model
from keras_vit.export.tflite.convert import FORMATS as FORMATS
from keras_vit.export.tflite.convert import write_tflite as write_tflite
from keras_vit.export.tflite.metadata import Description as Description
from keras_vit.export.tflite.metadata import read_description as read_description
from keras_vit.export.tflite.metadata import with_metadata as with_metadata
from keras_vit.export.web.folder import write_web_demo as write_web_demo
