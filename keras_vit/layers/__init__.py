"""The layers of a Vision Transformer, in alphabetical order of their modules.

An image passes `patches`, `tokens`, `positions`, `encoder` with its blocks (`block`: `norm`, `attention`, `mlp`), and
`pooling`; `keras_vit.models.vit` applies them in this order.
"""

from keras_vit.layers.attention import RelativePositions as RelativePositions
from keras_vit.layers.attention import SelfAttention as SelfAttention
from keras_vit.layers.axial import AxialAttention as AxialAttention
from keras_vit.layers.axial import AxialBlock as AxialBlock
from keras_vit.layers.block import EncoderBlock as EncoderBlock
from keras_vit.layers.block import LayerScale as LayerScale
from keras_vit.layers.block import StochasticDepth as StochasticDepth
from keras_vit.layers.config import BlockConfig as BlockConfig
from keras_vit.layers.encoder import Encoder as Encoder
from keras_vit.layers.mlp import Mlp as Mlp
from keras_vit.layers.norm import LayerNorm as LayerNorm
from keras_vit.layers.patches import ExtractPatches as ExtractPatches
from keras_vit.layers.patches import PatchEmbedding as PatchEmbedding
from keras_vit.layers.patches import resample_patch_embedding as resample_patch_embedding
from keras_vit.layers.pooling import AttentionPooling as AttentionPooling
from keras_vit.layers.pooling import AveragePooling as AveragePooling
from keras_vit.layers.pooling import TokenAndAveragePooling as TokenAndAveragePooling
from keras_vit.layers.pooling import TokenPooling as TokenPooling
from keras_vit.layers.positions import PositionEmbedding as PositionEmbedding
from keras_vit.layers.positions import PositionEmbedding2D as PositionEmbedding2D
from keras_vit.layers.positions import SinCosPositions as SinCosPositions
from keras_vit.layers.positions import resample_grid as resample_grid
from keras_vit.layers.resnet.backbone import ResNetBackbone as ResNetBackbone
from keras_vit.layers.resnet.backbone import SmallImageResNet as SmallImageResNet
from keras_vit.layers.resnet.standardized_conv import StandardizedConv2D as StandardizedConv2D
from keras_vit.layers.rotary import RotaryPositions as RotaryPositions
from keras_vit.layers.tokens import ClassToken as ClassToken
from keras_vit.layers.tokens import LearnedTokens as LearnedTokens
from keras_vit.layers.tokens import PatchDropout as PatchDropout
