"""Attention of a few images, small enough for a page. K heads, N tokens, L layers that are kept, h w patch grid."""

import base64
import math

import numpy as np
from keras import ops

from keras_vit_cli.html.inline_image import pixels_address
from keras_vit_cli.image_files import Images, spread
from keras_vit.inspect import position_similarity, to_eight_bits


class AttentionData:
    """What the page's script reads: attention of images by layer and head, and similarity of positions.

    As many images are kept as fit; if one does not, the layers are thinned out, evenly and with the last.

    Args:
        model: A `VisionTransformer`.
        images: Those that could be shown.
        max_megabytes: What the attention may take in the page.
    """

    def __init__(self, model, images: Images, max_megabytes: float):
        depth, heads = model.arguments["depth"], model.arguments["num_heads"]
        self.model = model
        layer_bytes = heads * (model.prefix_tokens + math.prod(model.grid)) ** 2
        fitting = int(max_megabytes * 1e6 * 3 / 4) // layer_bytes  # base64 writes 3 bytes as 4 letters
        self.layers = spread(depth, max(1, fitting))
        self.images = images.chosen(spread(len(images.names), max(1, fitting // depth)))
        self.left_out = len(images.names) - len(self.images.names)

    def settings(self) -> dict:
        """As plain values, for JSON."""
        model = self.model
        return {
            "grid": model.grid,
            "prefix": prefix_names(model),
            "heads": model.arguments["num_heads"],
            "layers": [layer + 1 for layer in self.layers],
            "depth": model.arguments["depth"],
            "images": [self._of_image(i) for i in range(len(self.images.names))],
            "positions": None if model.positions is None else self._positions(),
        }

    def _of_image(self, i):
        attention = self.model.attention_maps(self.images.images[i : i + 1])[0]  # (depth, K, N, N)
        attention = ops.convert_to_numpy(ops.cast(attention, "float32"))[self.layers]  # (L, K, N, N)
        levels, steps = to_eight_bits(attention)
        address = pixels_address(self.images.pixels[i])
        return {"name": self.images.names[i], "image": address, "levels": _letters(levels), "steps": _letters(steps)}

    def _positions(self):
        """Similarities, shifted so that the lowest is 0, in 8 bits and steps of one size."""
        similarity = position_similarity(self.model).reshape(1, -1)  # (1, h*w*h*w)
        lowest = min(0.0, float(similarity.min()))
        levels, steps = to_eight_bits(similarity - lowest)
        return {"levels": _letters(levels), "step": float(steps[0]), "lowest": lowest}


def prefix_names(model) -> list[str]:
    """The tokens before the patches, in their order."""
    arguments = model.arguments
    named = [name for name in ("class_token", "distillation") if arguments[name]]
    names = [{"class_token": "class token", "distillation": "distillation token"}[name] for name in named]
    return names + [f"register {i + 1}" for i in range(arguments["register_tokens"])]


def _letters(values: np.ndarray) -> str:
    """Bytes, numbers of several bytes with the lowest first, in base64."""
    return base64.b64encode(values.astype(values.dtype.newbyteorder("<")).tobytes()).decode()
