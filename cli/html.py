"""Parts of HTML reports: inline images, rows of images, package versions."""

import base64
import html
import io
import re
from collections.abc import Sequence
from importlib.metadata import version

import numpy as np


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
