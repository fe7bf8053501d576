"""The Vision Transformer for Keras: layers, models, weights, and ways to look inside."""

try:
    import keras as _keras  # noqa: F401
except ModuleNotFoundError as error:
    raise ModuleNotFoundError(
        f"Keras found no backend ({error}). Install one: pip install 'keras_vit[tensorflow]', or pip install jax and "
        "set the environment variable KERAS_BACKEND=jax."
    ) from error

from keras_vit import images as images
from keras_vit import inspect as inspect
from keras_vit import layers as layers
from keras_vit import variants as variants
from keras_vit import weights as weights
from keras_vit.inspect.rollout import attention_rollout as attention_rollout
from keras_vit.models.vit import VisionTransformer as VisionTransformer
from keras_vit.version import __version__ as __version__
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
