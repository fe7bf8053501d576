"""Attention of a few images, compressed for an HTML report. K heads, N tokens, L stored layers, h w patch grid."""

import base64
import math

import numpy as np
from keras import ops

from keras_vit.inspect import position_similarity, quantize_rows
from keras_vit_cli.html import pixel_url
from keras_vit_cli.inspect.image_files import ImageBatch, evenly_spaced


class AttentionData:
    """The data of the report's script: attention of each image, layer and head, and similarity of positions.

    As many images are stored as fit. If a single one does not fit, layers are omitted; the stored ones are evenly
    spaced and include the last.

    Args:
        model: A `VisionTransformer`.
        images: Images to show.
        max_megabytes: Size limit of the attention in the report, in base64.
    """

    def __init__(self, model, images: ImageBatch, max_megabytes: float):
        depth, heads = model.config.depth, model.config.num_heads
        self.model = model
        tokens = model.prefix_tokens + math.prod(model.grid)
        layer_bytes = heads * tokens * (tokens + 4)  # each row has levels and a step in float32
        max_layers = int(max_megabytes * 1e6 * 3 / 4) // layer_bytes  # base64: 3 bytes as 4 characters
        self.layers = evenly_spaced(depth, max(1, max_layers))
        self.images = images.select(evenly_spaced(len(images.names), max(1, max_layers // depth)))
        self.num_omitted = len(images.names) - len(self.images.names)

    def as_dict(self) -> dict:
        """The data as values for JSON."""
        model = self.model
        return {
            "grid": model.grid,
            "prefix": prefix_names(model),
            "heads": model.config.num_heads,
            "layers": [layer + 1 for layer in self.layers],
            "depth": model.config.depth,
            "images": [self._image(i) for i in range(len(self.images.names))],
            "positions": None if model.positions is None else self._positions(),
        }

    def _image(self, i) -> dict:
        attention = self.model.attention_maps(self.images.inputs[i : i + 1])[0]  # (depth, K, N, N)
        attention = ops.convert_to_numpy(ops.cast(attention, "float32"))[self.layers]  # (L, K, N, N)
        levels, steps = quantize_rows(attention)
        url = pixel_url(self.images.pixels[i])
        return {"name": self.images.names[i], "url": url, "levels": _base64(levels), "steps": _base64(steps)}

    def _positions(self) -> dict:
        """Similarities in 8 bits with a common step; the lowest one is subtracted, since levels are not negative."""
        similarity = position_similarity(self.model).reshape(1, -1)  # (1, h*w*h*w)
        lowest = min(0.0, float(similarity.min()))
        levels, steps = quantize_rows(similarity - lowest)
        return {"levels": _base64(levels), "step": float(steps[0]), "lowest": lowest}


def prefix_names(model) -> list[str]:
    """Names of the tokens before the patches, in order."""
    config = model.config
    tokens = [(config.class_token, "class token"), (config.distillation, "distillation token")]
    names = [name for present, name in tokens if present]
    return names + [f"register {i + 1}" for i in range(config.register_tokens)]


def _base64(values: np.ndarray) -> str:
    """Little-endian bytes in base64."""
    return base64.b64encode(values.astype(values.dtype.newbyteorder("<")).tobytes()).decode()
