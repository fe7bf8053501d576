"""Names of the classes of ImageNet, and predictions by name."""

from keras_vit.class_names.imagenet import imagenet_class_names as imagenet_class_names
from keras_vit.class_names.predictions import decode_predictions as decode_predictions
