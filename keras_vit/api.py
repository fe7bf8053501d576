"""The names that users import from `keras_vit`."""

try:
    import keras as _keras  # noqa: F401
except ModuleNotFoundError as error:
    raise ModuleNotFoundError(
        f"Keras found no backend ({error}). Install one: pip install 'vit-for-keras[tensorflow]', or pip install jax "
        "and set the environment variable KERAS_BACKEND=jax."
    ) from error

from keras_vit import class_names as class_names
from keras_vit import images as images
from keras_vit import inspect as inspect
from keras_vit import layers as layers
from keras_vit import variants as variants
from keras_vit import weights as weights
from keras_vit.class_names import decode_predictions as decode_predictions
from keras_vit.images.preprocessing import Preprocessing as Preprocessing
from keras_vit.inspect.attention import attention_rollout as attention_rollout
from keras_vit.models.axial_resnet import AxialResNet as AxialResNet
from keras_vit.models.axial_resnet import AxialResNetConfig as AxialResNetConfig
from keras_vit.models.bit import BiT as BiT
from keras_vit.models.bit import BiTConfig as BiTConfig
from keras_vit.models.config import ViTConfig as ViTConfig
from keras_vit.models.image_classifier import ImageClassifier as ImageClassifier
from keras_vit.models.image_classifier import ImageClassifierConfig as ImageClassifierConfig
from keras_vit.models.layer_decay import NO_WEIGHT_DECAY as NO_WEIGHT_DECAY
from keras_vit.models.layer_decay import layer_groups as layer_groups
from keras_vit.models.layer_decay import layer_wise_factors as layer_wise_factors
from keras_vit.models.load import load as load
from keras_vit.models.outer_model import classify as classify
from keras_vit.models.vit import VisionTransformer as VisionTransformer
from keras_vit.version import __version__ as __version__
from keras_vit.zoo import AxialResNet50 as AxialResNet50
from keras_vit.zoo import AxialViT_B16 as AxialViT_B16
from keras_vit.zoo import AxialViT_B32 as AxialViT_B32
from keras_vit.zoo import BiT_R50x1 as BiT_R50x1
from keras_vit.zoo import BiT_R50x2 as BiT_R50x2
from keras_vit.zoo import BiT_R50x3 as BiT_R50x3
from keras_vit.zoo import BiT_R101x1 as BiT_R101x1
from keras_vit.zoo import BiT_R101x3 as BiT_R101x3
from keras_vit.zoo import BiT_R152x1 as BiT_R152x1
from keras_vit.zoo import BiT_R152x2 as BiT_R152x2
from keras_vit.zoo import BiT_R152x4 as BiT_R152x4
from keras_vit.zoo import BiT_R200x3 as BiT_R200x3
from keras_vit.zoo import DeiT_B16 as DeiT_B16
from keras_vit.zoo import DeiT_S16 as DeiT_S16
from keras_vit.zoo import DeiT_Ti16 as DeiT_Ti16
from keras_vit.zoo import R26_ViT_B32 as R26_ViT_B32
from keras_vit.zoo import R26_ViT_S32 as R26_ViT_S32
from keras_vit.zoo import R50_ViT_B16 as R50_ViT_B16
from keras_vit.zoo import R50_ViT_B32 as R50_ViT_B32
from keras_vit.zoo import R50_ViT_L16 as R50_ViT_L16
from keras_vit.zoo import R50_ViT_L32 as R50_ViT_L32
from keras_vit.zoo import R_ViT_Ti16 as R_ViT_Ti16
from keras_vit.zoo import ViT as ViT
from keras_vit.zoo import ViT_B8 as ViT_B8
from keras_vit.zoo import ViT_B16 as ViT_B16
from keras_vit.zoo import ViT_B32 as ViT_B32
from keras_vit.zoo import ViT_G14 as ViT_G14
from keras_vit.zoo import ViT_g14 as ViT_g14
from keras_vit.zoo import ViT_H14 as ViT_H14
from keras_vit.zoo import ViT_H16 as ViT_H16
from keras_vit.zoo import ViT_L14 as ViT_L14
from keras_vit.zoo import ViT_L16 as ViT_L16
from keras_vit.zoo import ViT_L32 as ViT_L32
from keras_vit.zoo import ViT_S16 as ViT_S16
from keras_vit.zoo import ViT_S32 as ViT_S32
from keras_vit.zoo import ViT_Ti16 as ViT_Ti16
