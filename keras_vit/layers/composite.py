"""Layers made of layers: what was done to a layer inside belongs to the configuration of the whole."""

from functools import partial

import keras

from keras_vit.keras_internals import after_build, layer_settings, restore_settings, set_trainable
from keras_vit.named_weights import freeze, frozen_parts, named_layers


class Composite(keras.layers.Layer):
    """A layer made of layers, which are saved, cloned and copied with it as if Keras saved each of them.

    The configuration of a `keras.layers.Dense` states its dtype policy, and what `quantize` and `enable_lora` did to
    it. That of a composite states the same of each layer inside, and what is frozen there.

    Args:
        inner_layers: What differs from the layers that the other arguments make, see `layer_settings`, by the path of
            each layer inside this one, such as "mlp/hidden".
        frozen: Paths of the layers and weights that are not trained, see `frozen_parts`.
    """

    def __init__(self, *, inner_layers=None, frozen=(), **kwargs):
        super().__init__(**kwargs)
        self._at_first = {"inner_layers": dict(inner_layers or {}), "frozen": tuple(frozen)}
        after_build(self, partial(self._restore, **self._at_first))

    def _restore(self, inner_layers, frozen):
        for path, layer in named_layers(self).items():
            if path in inner_layers:
                restore_settings(layer, inner_layers[path])
        if frozen:
            freeze(self, frozen)
        elif not self.trainable:  # models around this one read the weights, not this
            set_trainable(self, False)

    def get_config(self):
        own = self._at_first
        if self.built or self.weights:  # a subclass of a model may be built by its first call
            settings = {path: layer_settings(layer, self) for path, layer in named_layers(self).items()}
            own = {"inner_layers": {path: s for path, s in settings.items() if s}, "frozen": frozen_parts(self)}
        return {**super().get_config(), **{name: value for name, value in own.items() if value}}
