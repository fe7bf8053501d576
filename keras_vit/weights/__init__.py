"""Loading and saving checkpoints: all weights, or an error that lists which do not match."""

from keras_vit.trained import packaged_names as packaged_names
from keras_vit.weights.checkpoint import Checkpoint as Checkpoint
from keras_vit.weights.downloads import download as download
from keras_vit.weights.loading import LoadReport as LoadReport
from keras_vit.weights.loading import load_weights as load_weights
from keras_vit.weights.opening import open_checkpoint as open_checkpoint
from keras_vit.weights.published import published_names as published_names
from keras_vit.weights.saving import save as save
