"""Sections of the report of `keras-vit inspect`, each a title, a text and HTML. n images, H W pixels, K heads."""

from collections.abc import Iterator

import numpy as np
from keras import ops

from keras_vit.class_names import top_classes
from keras_vit.inspect import (
    attention_distance,
    attention_rollout,
    figures,
    filter_components,
    gradient_rollout,
    layer_features,
    layer_similarity,
    nearest_neighbors,
    position_similarity,
)
from keras_vit.inspect.attention import gradient_rollout_undefined, patch_share
from keras_vit.inspect.representation import in_batches
from keras_vit.models.classification import output_activation, output_names
from keras_vit_cli.commands.inspect.model import InspectedModel
from keras_vit_cli.image_files import ImageBatch, count_images
from keras_vit_cli.page import Section, details, figure_image, image_rows, pixel_image, table

NUM_FILTERS = 28  # as in figure 7 of the paper
NUM_NEIGHBORS = 5
TARGETS = {"mean_color": "its mean color", "downsampled_color": "4 x 4 colors", "pixels": "its pixels"}
AUTOENCODER_TEXT = (
    "Predictions of the masked autoencoder for masked patches, orange, which its encoder does not see. A model of "
    "normalized patches does not predict their brightness and contrast: each has the mean and deviation of its true "
    "pixels. Visible patches are not predicted and show the image. MAE, arXiv 2111.06377, figure 2."
)


def sections(inspected: InspectedModel, images: ImageBatch, shown: list[int]) -> Iterator[Section]:
    """Title, text and HTML of each section that is defined for the model; `shown` are indices of images."""
    vit, shown_images = inspected.vit, images.select(shown)
    yield rollout(vit, shown_images)
    if inspected.masked_model is not None:
        yield reconstructions(inspected, shown_images)
    yield _attention_distance(vit, images)
    if vit.positions is not None:
        yield positions(vit)
    if vit.backbone is None:
        yield _filters(vit)
    if len(images.names) > 1:
        yield _layers(vit, images)
        yield _neighbors(vit, images, shown)


def rollout(vit, shown_images) -> Section:
    """Images, attention rollout and, where it is defined, gradient-weighted rollout."""
    undefined = gradient_rollout_undefined(vit)
    rows = []
    for i, (name, pixels) in enumerate(zip(shown_images.names, shown_images.pixels)):
        image = shown_images.inputs[i : i + 1]  # one at a time: attention of large models takes gigabytes
        row = [(pixels, name), (figures.overlay(pixels, attention_rollout(vit, image)[0]), "rollout")]
        if not undefined:
            overlay = figures.overlay(pixels, gradient_rollout(vit, image)[0])
            row.append((overlay, f"for {_prediction(vit, image)}"))
        rows.append(row)
    patches = "the mean of the patches"
    source = {0.0: "the class token", 0.5: f"the class token and {patches}", 1.0: patches}[patch_share(vit)]
    text = (
        f"Attention multiplied through the layers, read from {source}: the patches that can influence the prediction. "
        "Paper, figure 6 and appendix D.8; arXiv 2005.00928. "
    )
    text += (
        f"No gradient-weighted rollout: {undefined}."
        if undefined
        else "On the right, weighted by the gradients of the predicted class: evidence for it (arXiv 2103.15679)."
    )
    return "Attention rollout", text, image_rows(rows)


def _prediction(vit, image) -> str:
    """The predicted class and its probability."""
    logits = ops.convert_to_numpy(vit(image))
    (((name, probability),),) = top_classes(logits, output_names(vit), 1, output_activation(vit))
    return f"{name}, {probability:.1%}"


def _attention_distance(vit, images) -> Section:
    depth, heads = vit.config.depth, vit.config.num_heads
    bytes_per_image = 4 * depth * heads * (vit.prefix_tokens + vit.grid[0] * vit.grid[1]) ** 2
    batch_size = int(np.clip(2e8 // bytes_per_image, 1, 16))
    distances = attention_distance(vit, images.inputs, batch_size)  # (depth, K)
    text = (
        f"Mean distance in pixels that each head attends over, on {count_images(images.names)}; each dot is a head. In "
        "trained models, lower layers have both local and global heads, higher layers mostly global ones. Paper, "
        "figure 7, right, and appendix D.7; computed as in the author's code (google-research/vision_transformer, "
        "issue 162): attention to the class token counts as distance 0."
    )
    head = ["layer", *(f"head {i}" for i in range(1, heads + 1))]
    rows = [[str(i), *(f"{value:.2f}" for value in row)] for i, row in enumerate(distances, 1)]
    values = table(head, rows, "Table of mean attention distances", id="distances")
    figure = figure_image(figures.head_distances(distances), "Mean attention distance of each head by layer")
    return "Mean attention distance", text, figure + details("Table, in pixels", values)


def positions(vit) -> Section:
    text = (
        "Cosine similarity of position embeddings: each small map compares one patch with all others. In trained "
        "models, nearby patches and patches of the same row or column are similar. Paper, figure 7, center. "
    )
    if vit.config.position_embedding == "sincos_2d":
        text += "This model has fixed sine and cosine embeddings, which are not learned."
    elif vit.block_positions:
        text += "This model adds position embeddings before every block; these are those of the first."
    figure = figures.similarity_maps(position_similarity(vit))
    return "Similarity of position embeddings", text, figure_image(figure, "Similarity map of each patch")


def _filters(vit) -> Section:
    kernel = vit.patch_embedding.projection.kernel.shape  # (P, Q, 3, D)
    count = min(NUM_FILTERS, int(np.prod(kernel[:3])), kernel[3])
    components = filter_components(vit, count)  # (count, P, Q, 3)
    components /= np.abs(components).max(axis=(1, 2, 3), keepdims=True)
    tiles = np.rint(127.5 * (components + 1)).astype("uint8")
    text = (
        f"The first {count} principal components of the patch embedding filters, in order of explained variance. Gray "
        "is 0; signs are arbitrary. Trained filters resemble low-frequency basis functions; noise means little "
        "training. Paper, figure 7, left."
    )
    images = [pixel_image(tile, f"Component {i}") for i, tile in enumerate(tiles, 1)]
    return "Patch embedding filters", text, f'<div class="tiles">{"".join(images)}</div>'


def _layers(vit, images) -> Section:
    similarity = layer_similarity(layer_features(vit, images.inputs))  # (depth, depth)
    text = (
        f"Linear CKA, from 0 to 1, between the mean tokens after each block, on {count_images(images.names)} "
        '("Similarity of Neural Network Representations Revisited", arXiv 1905.00414).'
    )
    return "Similarity of layers", text, figure_image(figures.layer_matrix(similarity), "Linear CKA between layers")


def _neighbors(vit, images, shown) -> Section:
    features = np.concatenate([ops.convert_to_numpy(vit.features(batch)) for batch in in_batches(images.inputs, 16)])
    source = "the features before the head"
    if features.ndim == 3:  # unpooled
        features, source = features[:, vit.prefix_tokens :].mean(axis=1), "the mean patch token"
    count = min(NUM_NEIGHBORS, len(features) - 1)
    indices, cosines = nearest_neighbors(features[shown], features, count + 1)
    rows = []
    for query, neighbors, similarities in zip(shown, indices, cosines):
        others = [(i, cosine) for i, cosine in zip(neighbors, similarities) if i != query][:count]
        rows.append(
            [(images.pixels[query], images.names[query])]
            + [(images.pixels[i], f"{images.names[i]}, {cosine:.3f}") for i, cosine in others]
        )
    text = (
        f"Each image and its {count} nearest neighbors among {len(features):,} images: cosine similarity of {source}."
    )
    return "Nearest neighbors", text, image_rows(rows)


def reconstructions(inspected, shown_images) -> Section:
    from keras_vit.recipes.recipe import MaskedAutoencoder
    from keras_vit.recipes.runs.self_supervised import reconstruct

    result = reconstruct(inspected.masked_model, shown_images.pixels, inspected.recipe)
    inputs = np.where(result.masked[..., None], figures.MASK_COLOR, result.inputs)  # (n, H, W, 3)
    is_autoencoder = isinstance(inspected.recipe, MaskedAutoencoder)
    seen = "visible to the encoder" if is_autoencoder else "corrupted"
    rows = [
        [(image, name), (corrupted, seen), (predicted, "predicted"), (target, "target")]
        for name, image, corrupted, predicted, target in zip(
            shown_images.names, shown_images.pixels, inputs, result.predicted, result.targets
        )
    ]
    if is_autoencoder:
        return "Masked-autoencoder reconstructions", AUTOENCODER_TEXT, image_rows(rows)
    text = (
        "Predictions of the masked-patch model for corrupted patches. Orange patches are replaced by the [mask] "
        "embedding, some others by another patch of the image. Target of each patch: "
        f"{TARGETS[inspected.recipe.target]}. Where nothing is corrupted, the prediction shows the target. Paper, "
        "appendix B.1.2."
    )
    return "Masked-patch reconstructions", text, image_rows(rows)
