"""Ways to look inside a model: arrays in, arrays out."""

from keras_vit.inspect.positions import position_similarity as position_similarity
from keras_vit.inspect.rollout import attention_rollout as attention_rollout
