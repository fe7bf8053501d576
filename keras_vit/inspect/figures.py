"""Matplotlib figures of what the other modules compute. h w patch grid, H W pixels."""

import numpy as np
from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator

INK, ACCENT, MUTED = "#1f2933", "#c2410c", "#9aa5b1"
MASK_COLOR = np.array([253, 186, 116], "uint8")  # of masked patches


def image_grid(rows, row_titles, column_titles=(), size=0.95) -> Figure:
    """Rows of small images, each with a title, such as images above their reconstructions.

    Args:
        rows: Lists of arrays (H, W, 3) uint8 or (H, W, 4) float in [0, 1].
        row_titles: One per row.
        column_titles: One per column, or none.
        size: Side of an image in inches.
    """
    columns = max(map(len, rows))
    figure = Figure(figsize=(size * columns + 1.75, size * len(rows) + 0.3 * bool(column_titles)), layout="constrained")
    axes = figure.subplots(len(rows), columns, squeeze=False)
    for line, images, title in zip(axes, rows, row_titles):
        for axis in line[len(images) :]:
            axis.set_axis_off()
        for axis, image in zip(line, images):
            axis.imshow(image, interpolation="nearest")
            axis.set(xticks=[], yticks=[])
            axis.spines[:].set_color(MUTED)
        line[0].set_ylabel(title, rotation=0, ha="right", va="center", fontsize=9, color=INK, labelpad=8)
    for axis, title in zip(axes[0], column_titles):
        axis.set_title(title, fontsize=9, color=INK)
    return figure


def overlay(image, heat) -> np.ndarray:
    """An image (H, W, 3) uint8 with a heat map (H, W) in [0, 1] over it: unchanged at 0, mostly orange at 1."""
    heat = 0.7 * np.asarray(heat)[..., None]
    mixed = np.asarray(image, "float32") / 255 * (1 - heat) + np.array([1.0, 0.45, 0.1]) * heat  # (H, W, 3)
    return (np.clip(mixed, 0, 1) * 255).astype("uint8")


def curves(series, ylabel, percent=False, xlabel="step") -> Figure:
    """Curves, such as those of a training.

    Args:
        series: (x, y, (line style, color)) of each curve by its label; style and color as in matplotlib.
        percent: Whether y are fractions to be shown in percent.
    """
    figure = Figure(figsize=(4.6, 3.0), layout="constrained")
    axis = figure.subplots()
    for label, (x, y, (style, color)) in series.items():
        marker = "o" if len(y) == 1 else None  # a line of one point would be invisible
        axis.plot(
            x, np.asarray(y) * (100 if percent else 1), style, color=color, label=label, linewidth=1.8, marker=marker
        )
    axis.set(xlabel=xlabel, ylabel=ylabel)
    axis.grid(color="#e4e7eb")
    axis.spines[["top", "right"]].set_visible(False)
    if len(series) > 1:
        axis.legend(fontsize=8, frameon=False)
    return figure


def similarity_maps(similarity) -> Figure:
    """The paper's figure 7, center, from (h, w, h, w): for each patch, its similarity to all patches."""
    h, w = similarity.shape[:2]
    high, wide = -(-12 // h), -(-12 // w)  # pixels per value, so that gaps of one pixel are thin
    maps = np.repeat(np.repeat(similarity, high, 2), wide, 3)
    maps = np.pad(maps, ((0, 0), (0, 0), (0, 1), (0, 1)), constant_values=np.nan)
    maps = maps.transpose(0, 2, 1, 3).reshape(h * (h * high + 1), w * (w * wide + 1))[:-1, :-1]
    figure = Figure(figsize=(5.6, 0.6 + 4.2 * h / w), layout="constrained")
    axis = figure.subplots()
    lowest = min(0.0, similarity.min())
    # One image for all maps: separate axes take seconds for the 576 maps of a 384-pixel model.
    drawn = axis.imshow(maps, vmin=lowest, vmax=1, cmap="viridis", aspect="auto", extent=(0.5, w + 0.5, h + 0.5, 0.5))
    for side in (axis.xaxis, axis.yaxis):
        side.set_major_locator(MaxNLocator(integer=True))
    axis.spines[:].set_visible(False)
    axis.set(xlabel="column of the patch", ylabel="row of the patch")
    figure.colorbar(drawn, label="cosine similarity", shrink=0.6)
    return figure


def head_distances(distances) -> Figure:
    """The paper's figure 7, right, from (depth, K): mean attention distance of each head in pixels, by layer."""
    figure = Figure(figsize=(5.0, 3.4), layout="constrained")
    axis = figure.subplots()
    layers = np.arange(1, len(distances) + 1)
    axis.plot(layers, distances, "o", color=ACCENT, alpha=0.6, markersize=5, markeredgewidth=0)
    axis.set(xlabel="layer", ylabel="mean attention distance, pixels", ylim=(0, 1.1 * np.max(distances)))
    axis.xaxis.set_major_locator(MaxNLocator(integer=True))
    axis.grid(color="#e4e7eb")
    axis.spines[["top", "right"]].set_visible(False)
    return figure


def layer_matrix(similarity) -> Figure:
    """A matrix of `layer_similarity` in [0, 1], (depth, depth), with the first layer at the lower left."""
    figure = Figure(figsize=(4.2, 3.4), layout="constrained")
    axis = figure.subplots()
    ends = (0.5, len(similarity) + 0.5)
    drawn = axis.imshow(similarity, vmin=0, vmax=1, cmap="viridis", origin="lower", extent=(*ends, *ends))
    axis.set(xlabel="layer", ylabel="layer")
    for side in (axis.xaxis, axis.yaxis):
        side.set_major_locator(MaxNLocator(integer=True))
    figure.colorbar(drawn, label="linear CKA")
    return figure
