"""Models made of the layers."""

from keras_vit.models.axial_resnet import AxialResNet as AxialResNet
from keras_vit.models.bit import BiT as BiT
from keras_vit.models.config import ViTConfig as ViTConfig
from keras_vit.models.image_classifier import ImageClassifier as ImageClassifier
from keras_vit.models.vit import VisionTransformer as VisionTransformer
