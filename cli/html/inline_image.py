"""Images inside of an HTML page, so that it is one file."""

import base64
import html
import io


def figure_tag(figure, description: str) -> str:
    """An <img> of a matplotlib figure, 100 pixels an inch wide."""
    content = io.BytesIO()
    figure.savefig(content, format="png", dpi=150)
    width = round(figure.get_figwidth() * 100)
    return f'<img alt="{html.escape(description)}" width="{width}" src="{_address("png", content.getvalue())}">'


def pixels_tag(pixels, description: str) -> str:
    """An <img> of pixels (H, W, 3) uint8."""
    return f'<img alt="{html.escape(description)}" src="{pixels_address(pixels)}">'


def pixels_address(pixels) -> str:
    """A data: address of pixels (H, W, 3) uint8: exact where they are few, else as JPEG."""
    from PIL import Image

    content = io.BytesIO()
    kind = "png" if max(pixels.shape[:2]) <= 96 else "jpeg"
    Image.fromarray(pixels).save(content, kind, **({"quality": 88} if kind == "jpeg" else {}))
    return _address(kind, content.getvalue())


def _address(kind, content):
    return f"data:image/{kind};base64,{base64.b64encode(content).decode()}"
