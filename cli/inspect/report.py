"""The page of `keras-vit inspect`: one HTML file with images, data, style and script inside."""

import html
import json
from importlib import resources
from string import Template

from keras_vit_cli.html.versions import versions
from keras_vit_cli.image_files import Images, spread
from keras_vit_cli.inspect.attention_data import AttentionData
from keras_vit_cli.inspect.model import Inspected
from keras_vit_cli.inspect.sections import sections
from keras_vit.variants import name_of


def make_report(inspected: Inspected, images: Images, shown: int, max_megabytes: float) -> tuple[str, str]:
    """The page's text, and what to say of the attention in it.

    Args:
        inspected: The model.
        images: All that were read.
        shown: How many of them are shown one by one.
        max_megabytes: See `AttentionData`.
    """
    vit = inspected.vit
    places = spread(len(images.names), shown)
    data = AttentionData(vit, images.chosen(places), max_megabytes)
    settings = data.settings()
    remark = _remark(data, len(places), max_megabytes)
    web = resources.files("keras_vit_cli.inspect").joinpath("page")
    parts = {
        "style": web.joinpath("inspect.css").read_text(),
        "script": web.joinpath("inspect.js").read_text(),
        # A name of a file may hold anything, also the end of the script.
        "data": json.dumps(settings).replace("<", "\\u003c"),
        "facts": html.escape(_facts(vit, len(images.names))),
        "remark": html.escape(remark),
        "axial": _AXIAL if vit.arguments["axial"] else "",
        "ratio": f"{vit.image_size[1]} / {vit.image_size[0]}",
        "few_pixels": "few-pixels" if max(vit.image_size) <= 96 else "",
        "sections": "\n".join(_section(*parts) for parts in sections(inspected, images, places)),
        "versions": html.escape(versions("keras_vit", "keras")),
    }
    return Template(web.joinpath("inspect.html").read_text()).substitute(parts), remark


_AXIAL = """<p class="note">Blocks of this model attend along rows, then along columns. What is shown of a head is its
attention along the column times the mean attention along the row: where its information comes from by way of both.</p>
"""


def _remark(data, shown, max_megabytes):
    images, layers, depth = len(data.images.names), len(data.layers), data.model.arguments["depth"]
    text = f"Attention of {images} of {shown} images" if data.left_out else f"Attention of {_images(images)}"
    if layers < depth:
        text += f" and {layers} of {depth} layers"
    less = data.left_out or layers < depth
    return text + (f", to stay at {max_megabytes:g} MB: --max-megabytes makes room for more." if less else ".")


def _facts(vit, count):
    name, (height, width), (h, w) = name_of(vit.arguments), vit.image_size, vit.grid
    arguments = vit.arguments
    return (
        f"{name or vit.name}: {height} x {width} pixels in {h} x {w} patches, depth {arguments['depth']}, width "
        f"{arguments['width']}, {arguments['num_heads']} heads, {vit.count_params():,} weights. Looked at with "
        f"{_images(count)}."
    )


def _images(count):
    return f"{count:,} image{'s' * (count != 1)}"


def _section(title, text, body):
    return f"<section>\n<h2>{html.escape(title)}</h2>\n<p>{html.escape(text)}</p>\n{body}\n</section>"
