"""The report of `keras-vit inspect`: one HTML file with images, data, style and script inside.

K heads, N tokens, L stored layers, h w patch grid.
"""

import base64
import html
import math
from dataclasses import asdict
from importlib import resources
from pathlib import Path
from string import Template

import numpy as np
from keras import ops

from keras_vit.inspect import position_similarity, quantize_rows
from keras_vit.variants import variant_name
from keras_vit_cli.commands.inspect.model import InspectedModel
from keras_vit_cli.commands.inspect.sections import sections
from keras_vit_cli.image_files import ImageBatch, count_images, evenly_spaced
from keras_vit_cli.page import package_versions, page, pixel_url, section

_AXIAL = """<p class="note">Blocks of this model attend along rows, then along columns. The attention of a head is
its attention along the column times the mean attention along the row: where information comes from through both.</p>
"""


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
            "prefix": _prefix_names(model),
            "heads": model.config.num_heads,
            "layers": [layer + 1 for layer in self.layers],
            "depth": model.config.depth,
            "images": [self._image(i) for i in range(len(self.images.names))],
            "positions": None if model.positions is None else self._positions(),
        }

    def _image(self, i) -> dict:
        blocks = [layer + 1 for layer in self.layers]
        attention = self.model.attention_maps(self.images.inputs[i : i + 1], blocks)[0]  # (L, K, N, N)
        attention = ops.convert_to_numpy(ops.cast(attention, "float32"))
        levels, steps = quantize_rows(attention)
        url = pixel_url(self.images.pixels[i])
        return {"name": self.images.names[i], "url": url, "levels": _base64(levels), "steps": _base64(steps)}

    def _positions(self) -> dict:
        """Similarities in 8 bits with a common step; the lowest one is subtracted, since levels are not negative."""
        similarity = position_similarity(self.model).reshape(1, -1)  # (1, h*w*h*w)
        lowest = min(0.0, float(similarity.min()))
        levels, steps = quantize_rows(similarity - lowest)
        return {"levels": _base64(levels), "step": float(steps[0]), "lowest": lowest}


def make_report(
    inspected: InspectedModel, images: ImageBatch, weights: str, source: str, num_shown: int, max_megabytes: float
) -> tuple[str, str]:
    """The HTML, and a sentence about how many images and layers it stores attention of.

    Args:
        weights, source: The model, and the folder of the images or the only file, as the user calls them.
        max_megabytes: See `AttentionData`.
    """
    vit = inspected.vit
    shown = evenly_spaced(len(images.names), num_shown)
    data = AttentionData(vit, images.select(shown), max_megabytes)
    attention_size = _attention_size(data, len(shown), max_megabytes)
    files = resources.files("keras_vit_cli.commands.inspect").joinpath("page")
    values = {"attention_size": html.escape(attention_size), "axial": _AXIAL if vit.config.axial else ""}
    viewer = Template(files.joinpath("inspect.html").read_text()).substitute(values)
    text = page(
        f"{weights} on {source}: Vision Transformer inspection",
        _summary(vit, images.names, weights, source),
        "\n".join([viewer, *(section(*parts) for parts in sections(inspected, images, shown))]),
        f'Paper: "An Image is Worth 16x16 Words" (arXiv 2010.11929). {package_versions("vit-for-keras", "keras")}',
        style=files.joinpath("inspect.css").read_text(),
        script=files.joinpath("inspect.js").read_text(),
        data=data.as_dict(),
        attributes=f'style="--ratio: {vit.image_size[1]} / {vit.image_size[0]}"',
    )
    return text, attention_size


def _attention_size(data, num_shown, max_megabytes) -> str:
    num_images, num_layers, depth = len(data.images.names), len(data.layers), data.model.config.depth
    text = f"Attention of {num_images} of {num_shown}" if data.num_omitted else f"Attention of {num_images}"
    text += f" image{'s' * (num_shown != 1)}"
    if num_layers < depth:
        text += f" and {num_layers} of {depth} layers"
    if data.num_omitted or num_layers < depth:
        text += f", to keep this attention within {max_megabytes:g} MB (--max-megabytes)"
    return text + "."


def _summary(vit, names, weights, source) -> str:
    config, (height, width), (h, w) = vit.config, vit.image_size, vit.grid
    variant = variant_name(asdict(config))
    inspected_on = f"the image {source}" if Path(source).is_file() else f"{count_images(names)} of {source}"
    return (
        f"Model: {weights}{f', {variant}' if variant else ''}, {height} x {width} pixels in {h} x {w} patches, depth "
        f"{config.depth}, width {config.width}, {config.num_heads} heads, {vit.count_params():,} parameters. Inspected "
        f"on {inspected_on}, shown as the model sees them: resized, and cropped if its preprocessing crops."
    )


def _prefix_names(model) -> list[str]:
    """Names of the tokens before the patches, in order."""
    config = model.config
    tokens = [(config.class_token, "class token"), (config.distillation, "distillation token")]
    names = [name for present, name in tokens if present]
    return names + [f"register {i + 1}" for i in range(config.register_tokens)]


def _base64(values: np.ndarray) -> str:
    """Little-endian bytes in base64."""
    return base64.b64encode(values.astype(values.dtype.newbyteorder("<")).tobytes()).decode()
