"""Weights in: from other models and from published files. All of them, or an error that says which do not fit."""

from keras_vit.weights.match import LoadReport as LoadReport
from keras_vit.weights.npz import load_npz as load_npz
