"""The report of `keras-vit inspect`: one HTML file with images, data, style and script inside."""

import html
import json
from dataclasses import asdict
from importlib import resources
from pathlib import Path
from string import Template

from keras_vit.variants import variant_name
from keras_vit_cli.html import package_versions
from keras_vit_cli.inspect.attention_data import AttentionData
from keras_vit_cli.inspect.image_files import ImageBatch, count_images, evenly_spaced
from keras_vit_cli.inspect.model import InspectedModel
from keras_vit_cli.inspect.sections import sections

_AXIAL = """<p class="note">Blocks of this model attend along rows, then along columns. The attention of a head is
its attention along the column times the mean attention along the row: where information comes from through both.</p>
"""


def make_report(
    inspected: InspectedModel, images: ImageBatch, weights: str, source: str, num_shown: int, max_megabytes: float
) -> tuple[str, str]:
    """The HTML, and a sentence about how many images and layers it stores attention of.

    Args:
        inspected: The model.
        images: All images.
        weights: The model's file, folder or name, as the user calls it.
        source: The folder of the images, or the only file.
        num_shown: Number of images to show.
        max_megabytes: See `AttentionData`.
    """
    vit = inspected.vit
    shown = evenly_spaced(len(images.names), num_shown)
    data = AttentionData(vit, images.select(shown), max_megabytes)
    attention_size = _attention_size(data, len(shown), max_megabytes)
    page = resources.files("keras_vit_cli.inspect").joinpath("page")
    parts = {
        "style": page.joinpath("inspect.css").read_text(),
        "script": page.joinpath("inspect.js").read_text(),
        # A file name may contain anything, also "</script>".
        "data": json.dumps(data.as_dict()).replace("<", "\\u003c"),
        "title": html.escape(f"{weights} on {source}: Vision Transformer inspection"),
        "summary": html.escape(_summary(vit, images.names, weights, source)),
        "attention_size": html.escape(attention_size),
        "axial": _AXIAL if vit.config.axial else "",
        "ratio": f"{vit.image_size[1]} / {vit.image_size[0]}",
        "few_pixels": "few-pixels" if max(vit.image_size) <= 96 else "",
        "sections": "\n".join(_section(*section) for section in sections(inspected, images, shown)),
        "versions": html.escape(package_versions("keras_vit", "keras")),
    }
    return Template(page.joinpath("inspect.html").read_text()).substitute(parts), attention_size


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


def _section(title, text, body) -> str:
    return f"<section>\n<h2>{html.escape(title)}</h2>\n<p>{html.escape(text)}</p>\n{body}\n</section>"
