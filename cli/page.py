"""The HTML page of a report: one file that works offline, with its style, script, images and data inside."""

import base64
import html
import io
import json
import re
from collections.abc import Sequence
from importlib import resources
from importlib.metadata import version
from string import Template

import numpy as np

Section = tuple[str, str, str]  # the title, text and HTML of a `section`


def page(
    title: str,
    summary: str,
    body: str,
    note: str,
    *,
    style: str = "",
    script: str = "",
    data: object = None,
    attributes: str = "",
) -> str:
    """The text of a page.

    Args:
        title, summary, note: Texts above and below the body.
        body: HTML, such as that of `section`.
        style, script: CSS beside that of all pages, and a JavaScript module.
        data: What the script finds in the element "data", as JSON.
        attributes: Of the element body.
    """
    files = resources.files("keras_vit_cli")
    values = {
        "title": html.escape(title),
        "summary": html.escape(summary),
        "body": body,
        "note": html.escape(note),
        "style": files.joinpath("page.css").read_text() + style,
        "script": script,
        "data": json.dumps(data).replace("<", "\\u003c"),  # a file name may contain anything, also "</script>"
        "attributes": attributes,
    }
    return Template(files.joinpath("page.html").read_text()).substitute(values)


def section(title: str, text: str, body: str) -> str:
    """A section with a heading, a text if there is one, and HTML below it."""
    paragraph = f"<p>{html.escape(text)}</p>\n" if text else ""
    return f"<section>\n<h2>{html.escape(title)}</h2>\n{paragraph}{body}\n</section>"


def pair(*parts: str) -> str:
    """Sections or images beside each other, where there is space."""
    return f'<div class="pair">{"".join(parts)}</div>'


def message(text: str) -> str:
    """A warning."""
    return f'<p class="message">{html.escape(text)}</p>'


def details(summary: str, body: str) -> str:
    """HTML that a click on a summary opens."""
    return f"<details><summary>{html.escape(summary)}</summary>{body}</details>"


def cards(values: dict[str, str]) -> str:
    """The most important numbers, by what they are."""
    divisions = (
        f'<div class="card"><b>{html.escape(value)}</b>{html.escape(text)}</div>' for text, value in values.items()
    )
    return f'<div class="cards">{"".join(divisions)}</div>'


def table(head: Sequence[str], rows: Sequence[Sequence[str]], label: str, **attributes: str) -> str:
    """A table that scrolls within the page.

    Args:
        rows: HTML of the cells; the first of each row is its heading.
        label: What the table is, for screen readers.
    """
    headings = "".join(f'<th scope="col">{html.escape(text)}</th>' for text in head)
    lines = "".join(
        f'<tr><th scope="row">{first}</th>' + "".join(f"<td>{cell}</td>" for cell in others) + "</tr>\n"
        for first, *others in rows
    )
    named = "".join(f' {name}="{value}"' for name, value in attributes.items())
    content = f"<table{named}>\n<tr>{headings}</tr>\n{lines}</table>"
    return f'<div class="scrollable" tabindex="0" role="region" aria-label="{html.escape(label)}">{content}</div>'


def figure_image(figure, alt: str) -> str:
    """An <img> of a matplotlib figure, 100 CSS pixels per inch wide."""
    content = io.BytesIO()
    figure.savefig(content, format="png", dpi=150)
    width = round(figure.get_figwidth() * 100)
    return f'<img alt="{html.escape(alt)}" width="{width}" src="{_data_url("png", content)}">'


def pixel_image(pixels: np.ndarray, alt: str) -> str:
    """An <img> of pixels (H, W, 3) uint8."""
    return f'<img alt="{html.escape(alt)}" src="{pixel_url(pixels)}">'


def pixel_url(pixels: np.ndarray) -> str:
    """A data: URL of pixels (H, W, 3) uint8: PNG up to 96 x 96 pixels, else JPEG."""
    from PIL import Image

    content = io.BytesIO()
    if max(pixels.shape[:2]) <= 96:
        Image.fromarray(pixels).save(content, "png")
        return _data_url("png", content)
    Image.fromarray(pixels).save(content, "jpeg", quality=88)
    return _data_url("jpeg", content)


def _data_url(kind: str, content: io.BytesIO) -> str:
    return f"data:image/{kind};base64,{base64.b64encode(content.getvalue()).decode()}"


def image_rows(rows: Sequence[Sequence[tuple[np.ndarray, str]]]) -> str:
    """Rows of small images with captions, each (pixels (H, W, 3) uint8, caption); they wrap on narrow screens."""
    lines = "\n".join(f'<div class="row">{"".join(_figure(*cell) for cell in row)}</div>' for row in rows)
    cells = max(map(len, rows))
    return f'<div class="rows of-{cells}" style="--cells: {cells}">\n{lines}\n</div>'


def _figure(pixels, caption) -> str:
    # File names break after a folder or an underscore, or before the suffix; not within a word.
    caption = re.sub(r"(?<=[/_])|(?=\.[A-Za-z])", "<wbr>", html.escape(caption))
    # The alternative text is empty: screen readers would read the caption twice.
    return f'<figure><img alt="" src="{pixel_url(pixels)}"><figcaption>{caption}</figcaption></figure>'


def package_versions(*packages: str) -> str:
    """Versions of installed packages, and the backend of Keras."""
    import keras

    return ", ".join(f"{name} {version(name)}" for name in packages) + f"; backend {keras.backend.backend()}"
