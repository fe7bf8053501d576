"""From outputs to words: the classes of ImageNet in the order of the published checkpoints."""

from keras_vit.labels.imagenet import imagenet_labels as imagenet_labels
from keras_vit.labels.predictions import decode_predictions as decode_predictions
