"""Rows of small images with a caption each, for a page."""

import html

from keras_vit_cli.html.inline_image import pixels_address


def image_rows(rows) -> str:
    """HTML of lists of (pixels (H, W, 3) uint8, caption), not empty: they wrap where the screen is narrow."""
    drawn = "\n".join(f'<div class="row">{"".join(_figure(*cell) for cell in row)}</div>' for row in rows)
    cells = max(map(len, rows))
    return f'<div class="rows of-{cells}" style="--cells: {cells}">\n{drawn}\n</div>'


def _figure(pixels, caption):
    caption = html.escape(caption)
    # The caption stands below: as alt it would be read twice.
    return f'<figure><img alt="" src="{pixels_address(pixels)}"><figcaption>{caption}</figcaption></figure>'
