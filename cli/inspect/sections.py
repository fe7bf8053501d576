"""What `keras-vit inspect` measures, as parts of its page. n images, H W pixels, K heads."""

from collections.abc import Iterator

import numpy as np
from keras import ops

from keras_vit_cli.html.image_rows import image_rows
from keras_vit_cli.html.inline_image import figure_tag, pixels_tag
from keras_vit_cli.inspect.attention_images import attention_rows
from keras_vit.inspect import (
    attention_distance,
    figures,
    filter_components,
    layer_features,
    layer_similarity,
    nearest_neighbors,
    position_similarity,
)
from keras_vit.inspect.batches import in_batches

FILTERS = 28  # of the paper's figure 7
NEIGHBOURS = 5
TARGETS = {
    "mean_color": "the mean color of a patch",
    "downsampled_color": "4 x 4 colors of a patch",
    "pixels": "the pixels of a patch",
}


def sections(inspected, images, places) -> Iterator[tuple[str, str, str]]:
    """Title, text and HTML of everything that the model has.

    Args:
        inspected: The `Inspected` model.
        images: All that were read.
        places: Numbers of those that are shown one by one.
    """
    vit, shown = inspected.vit, images.chosen(places)
    yield attention_rows(vit, shown, inspected.labels)
    if inspected.masked is not None:
        yield _reconstructions(inspected, shown)
    yield _distances(vit, images)
    if vit.positions is not None:
        yield _positions(vit)
    if vit.backbone is None:
        yield _filters(vit)
    if len(images.names) > 1:
        yield _layers(vit, images)
        yield _neighbors(vit, images, places)


def _distances(vit, images):
    depth, heads = vit.arguments["depth"], vit.arguments["num_heads"]
    of_image = 4 * depth * heads * (vit.prefix_tokens + vit.grid[0] * vit.grid[1]) ** 2  # bytes
    batch_size = int(np.clip(2e8 // of_image, 1, 16))
    distances = attention_distance(vit, images.images, batch_size)  # (depth, K)
    text = (
        f"How far each head looks, in pixels, on average over {len(images.names):,} images: a dot is a head. Low "
        "layers of trained models have heads that look near and heads that look far; in high layers most look far. "
        "Paper, figure 7, right, and appendix D.7, computed as its author's code does "
        "(google-research/vision_transformer, issue 162): what goes to the class token counts as distance 0."
    )
    rows = "".join(
        f'<tr><th scope="row">{i}</th>' + "".join(f"<td>{value:.2f}</td>" for value in row) + "</tr>"
        for i, row in enumerate(distances, 1)
    )
    head = "".join(f'<th scope="col">head {i}</th>' for i in range(1, heads + 1))
    table = f'<table id="distances"><tr><th scope="col">layer</th>{head}</tr>{rows}</table>'
    image = figure_tag(figures.head_distances(distances), "Mean attention distance of each head by layer")
    name = "Mean attention distance, numbers"
    table = f'<div class="wide" tabindex="0" role="region" aria-label="{name}">{table}</div>'
    numbers = f"<details><summary>Numbers, pixels</summary>{table}</details>"
    return "Mean attention distance", text, image + numbers


def _positions(vit):
    text = (
        "Each small map belongs to a patch and shows how alike its position embedding is to those of all patches "
        "(cosine). Near patches, and those of the same row and column, become alike. Paper, figure 7, center. "
    )
    if vit.arguments["position_embedding"] == "sincos_2d":
        text += "Here positions are fixed sines and cosines: nothing was learned."
    elif vit.block_positions:
        text += "Positions are added before every layer; these are the first ones."
    return (
        "Similarity of positions",
        text,
        figure_tag(figures.similarity_maps(position_similarity(vit)), "A map for each patch"),
    )


def _filters(vit):
    kernel = vit.patch_embedding.projection.kernel.shape  # (P, Q, 3, D)
    count = min(FILTERS, int(np.prod(kernel[:3])), kernel[3])
    components = filter_components(vit, count)  # (count, P, Q, 3)
    components /= np.abs(components).max(axis=(1, 2, 3), keepdims=True)
    tiles = np.rint(127.5 * (components + 1)).astype("uint8")
    text = (
        f"The first {count} principal components of the filters that make patches into tokens, the one that explains "
        "most first; gray is 0, and a sign is arbitrary. Trained filters resemble a basis of what is low in frequency "
        "within a patch; noise means little training. Paper, figure 7, left."
    )
    drawn = [pixels_tag(tile, f"Component {i}") for i, tile in enumerate(tiles, 1)]
    return "Filters of the patch embedding", text, f'<div class="tiles">{"".join(drawn)}</div>'


def _layers(vit, images):
    similarity = layer_similarity(layer_features(vit, images.images))  # (depth, depth)
    text = (
        f"How alike two layers see {len(images.names):,} images, from 0 to 1: linear CKA of the mean token after "
        'each block ("Similarity of Neural Network Representations Revisited", arXiv 1905.00414).'
    )
    return "Similarity of layers", text, figure_tag(figures.layer_matrix(similarity), "Linear CKA between layers")


def _neighbors(vit, images, places):
    features = np.concatenate([ops.convert_to_numpy(vit.features(some)) for some in in_batches(images.images, 16)])
    read = "what the head sees"
    if features.ndim == 3:  # unpooled
        features, read = features[:, vit.prefix_tokens :].mean(axis=1), "the mean of the patches' tokens"
    count = min(NEIGHBOURS, len(features) - 1)
    order, cosines = nearest_neighbors(features[places], features, count + 1)
    rows = []
    for place, near, alike in zip(places, order, cosines):
        others = [(i, cosine) for i, cosine in zip(near, alike) if i != place][:count]
        rows.append(
            [(images.pixels[place], images.names[place])]
            + [(images.pixels[i], f"{images.names[i]}, {cosine:.3f}") for i, cosine in others]
        )
    text = f"Each image, then the {count} of the {len(features):,} that are most alike to the model: cosine of {read}."
    return "Nearest neighbors", text, image_rows(rows)


def _reconstructions(inspected, shown):
    from keras_vit.recipes.masked_patch.reconstruction import reconstruct

    drawn = reconstruct(inspected.masked, shown.pixels, inspected.recipe)
    seen = np.where(drawn.masked[..., None], figures.HIDDEN, drawn.seen)  # (n, H, W, 3)
    parts = zip(shown.names, shown.pixels, seen, drawn.predicted, drawn.true)
    rows = [
        [(image, name), (given, "given"), (predicted, "predicted"), (true, "true target")]
        for name, image, given, predicted, true in parts
    ]
    target = TARGETS[inspected.recipe.target]
    text = (
        f"What the masked-patch model makes of corrupted patches; its target: {target}. Orange is "
        "behind the [mask] embedding, and some patches are replaced by others. Where nothing is corrupted, the truth "
        "stands under predicted too. Paper, appendix B.1.2."
    )
    return "Reconstruction of masked patches", text, image_rows(rows)
