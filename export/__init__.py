"""Models for servers and phones: SavedModel, TFLite, and the check that they compute what Keras computes.

Installed as `keras_vit.export`.
"""

from keras_vit.export.parity import Parity as Parity
from keras_vit.export.parity import check_parity as check_parity
from keras_vit.export.saved_model import write_saved_model as write_saved_model
from keras_vit.export.tflite import FORMATS as FORMATS
from keras_vit.export.tflite import write_tflite as write_tflite
