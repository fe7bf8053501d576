"""Inspection of trained models: attention, positions, filters, features. Arrays in, arrays out."""

from keras_vit.inspect.attention import attention_distance as attention_distance
from keras_vit.inspect.attention import attention_rollout as attention_rollout
from keras_vit.inspect.attention import gradient_rollout as gradient_rollout
from keras_vit.inspect.attention import mean_attention_distance as mean_attention_distance
from keras_vit.inspect.attention import quantize_rows as quantize_rows
from keras_vit.inspect.representation import filter_components as filter_components
from keras_vit.inspect.representation import layer_features as layer_features
from keras_vit.inspect.representation import layer_similarity as layer_similarity
from keras_vit.inspect.representation import linear_cka as linear_cka
from keras_vit.inspect.representation import nearest_neighbors as nearest_neighbors
from keras_vit.inspect.representation import position_similarity as position_similarity
