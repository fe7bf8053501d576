"""The model equals the paper, with all its options: positions, tokens, ResNet stems, axial blocks, excluded ones."""

import keras
import numpy as np
import pytest
import tensorflow as tf

import keras_vit
from keras_vit.layers import AxialBlock, SinCosPositions, resample_grid
from keras_vit.named_weights import named_weights

# The toy of conftest.py in the letters of the closed forms: 17 tokens are 16 patches and a class token.
D, M, L, K, C, PATCHES = 12, 24, 2, 3, 5, 16
BLOCK = 4 * D * D + 2 * D * M + 9 * D + M
PLAIN = (4 * 4 * 3 * D + D) + D + (PATCHES + 1) * D + L * BLOCK + 2 * D + C * (D + 1)
NO_TABLE = PLAIN - (PATCHES + 1) * D
# A ResNet's root, and a unit of F filters on 32 channels with a projection; each convolution is normalized.
ROOT = 7 * 7 * 3 * 64 + 2 * 64
UNIT = (64 * 64 + 2 * 64) + (9 * 64 * 64 + 2 * 64) + (64 * 256 + 2 * 256) + (64 * 256 + 2 * 256)

# Each set of options with its number of weights.
OPTIONS = {
    "distillation": ({"distillation": True}, PLAIN + 2 * D + C * (D + 1)),
    "patches have positions": ({"register_tokens": 3, "prefix_positions": False}, PLAIN + 3 * D - D),
    "learned_2d, every layer": (
        {"position_embedding": "learned_2d", "position_placement": "every_layer", "distillation": True},
        NO_TABLE + D + C * (D + 1) + L * ((4 + 4) * D // 2 + 2 * D),
    ),
    "shared": ({"position_placement": "shared", "depth": 3}, PLAIN + BLOCK),
    "sincos_2d": ({"position_embedding": "sincos_2d", "prefix_positions": False, "pooling": "gap"}, NO_TABLE - D),
    "sincos_2d, shared": ({"position_embedding": "sincos_2d", "position_placement": "shared"}, NO_TABLE),
    "relative": (
        {"position_embedding": "relative", "register_tokens": 1},
        NO_TABLE + D + L * (2 * (PATCHES + 2) - 1) * D // K,
    ),
    "none": ({"position_embedding": "none", "num_classes": 0}, NO_TABLE - C * (D + 1)),
    "block options": (
        {"layer_scale": 0.1, "qk_norm": True, "norm_after_pooling": True, "pooling": "gap", "class_token": True},
        PLAIN + L * (2 * D + 4 * D // K),
    ),
    "CLIP": ({"norm_before_encoder": True, "gelu": "quick"}, PLAIN + 2 * D),
    "token_and_gap": ({"pooling": "token_and_gap", "register_tokens": 1}, PLAIN + 2 * D + C * D),
    "SwiGLU": ({"swiglu": True}, PLAIN + L * M * (D + 1)),
    "axial": ({"axial": True, "register_tokens": 1, "layer_scale": 0.1}, PLAIN + 2 * D + L * (BLOCK + 4 * D)),
    "hybrid": (
        {"resnet_stages": (1,), "patch_size": 8, "dropout": 0.1, "stochastic_depth": 0.1, "seed": 3},
        PLAIN + ROOT + UNIT + (2 * 2 * 256 - 4 * 4 * 3) * D - 12 * D,
    ),
}


@pytest.mark.slow
@pytest.mark.parametrize("name", OPTIONS)
def test_count_gradients_and_keras_file(trained_toy, images, tmp_path, name):
    changes, count = OPTIONS[name]
    model = trained_toy(**changes)
    assert model.count_params() == sum(np.prod(weight.shape) for weight in model.weights) == count
    assert len({weight.path for weight in model.weights}) == len(model.weights)
    model.save(tmp_path / "model.keras")
    loaded = keras.saving.load_model(tmp_path / "model.keras")
    assert loaded.get_config() == model.get_config()
    output = model(images)
    np.testing.assert_array_equal(loaded(images), output)
    assert model.compute_output_shape(images.shape) == output.shape
    with tf.GradientTape() as tape:
        loss = tf.reduce_sum(model(images, training=True) ** 2)
    for weight, gradient in zip(model.trainable_weights, tape.gradient(loss, model.trainable_weights)):
        assert isinstance(gradient, tf.Tensor) and np.isfinite(gradient).all() and np.any(gradient), weight.path


@pytest.mark.parametrize("axial", [False, True])
def test_attention_maps_do_not_change_the_output(trained_toy, images, axial):
    model = trained_toy(axial=axial, image_size=(16, 8))
    images = images[:, :, :8]
    before, maps = np.asarray(model(images)), model.attention_maps(images)
    assert maps.shape == (3, 2, 3, 9, 9)
    np.testing.assert_allclose(np.sum(maps, axis=-1), 1, atol=1e-5)
    np.testing.assert_array_equal(model(images), before)
    assert keras_vit.attention_rollout(model, images).shape == (3, 16, 8)
    for block in model.encoder.blocks if axial else ():
        assert isinstance(block, AxialBlock) and block.grid == (4, 2) and block.prefix_tokens == 1


def embedded(model, images):
    """Patch embeddings, and the tokens before them: each (B, n, D)."""
    embeddings = np.asarray(model.embed(images))
    prefix = [
        np.asarray(weight)
        for layer in (model.class_token, model.distillation_token, model.register_tokens)
        if layer
        for weight in layer.weights
    ]
    return embeddings, [np.repeat(tokens, len(images), axis=0) for tokens in prefix]


@pytest.mark.parametrize(
    "kind,placement", [("learned_1d", "every_layer"), ("learned_2d", "shared"), ("sincos_2d", "every_layer")]
)
def test_positions_before_every_block(trained_toy, images, kind, placement):
    model = trained_toy(position_embedding=kind, position_placement=placement, depth=3)
    layers = (model.positions, *model.block_positions)
    tables = [np.asarray(layer.table) for layer in layers]
    assert len(tables) == 3 and len(set(layers)) == (1 if placement == "shared" else 3)
    assert np.array_equal(tables[1], tables[2]) == (placement == "shared" or kind == "sincos_2d")
    embeddings, prefix = embedded(model, images)
    tokens = np.concatenate([*prefix, embeddings], axis=1)
    for table, block in zip(tables, model.encoder.blocks):
        tokens = np.asarray(block(tokens + table))
    np.testing.assert_allclose(model.encode(embeddings), model.encoder.norm(tokens), atol=1e-5)


def test_permutation_invariance_without_positions(trained_toy, images):
    mirrored = np.concatenate([images[:, :, 8:], images[:, :, :8]], axis=2)
    for kind, matters in {"none": False, "relative": True, "sincos_2d": True}.items():
        model = trained_toy(position_embedding=kind)
        assert np.allclose(model(images), model(mirrored), atol=1e-5) != matters


@pytest.mark.parametrize("name", ["learned_2d, every layer", "axial", "hybrid"])
def test_resized_keeps_all_other_weights(trained_toy, images, name):
    model = trained_toy(**OPTIONS[name][0])
    np.testing.assert_array_equal(model.resized(16)(images), model(images))
    large = model.resized((24, 32))
    assert large(np.zeros((1, 24, 32, 3), "float32")).shape[0] == 1
    assert large.preprocessing.image_size == (24, 32)
    resized = named_weights(large)
    for path, weight in named_weights(model).items():
        if not path.startswith("positions") and "/positions" not in path:
            np.testing.assert_array_equal(weight, resized[path], err_msg=path)


def test_resized_resamples_all_position_embeddings(trained_toy):
    tables = trained_toy(position_placement="every_layer", register_tokens=2)
    larger = tables.resized((24, 8))
    for source, target in zip((tables.positions, *tables.block_positions), (larger.positions, *larger.block_positions)):
        expected = resample_grid(source.table, (4, 4), (6, 2), prefix_tokens=3)
        np.testing.assert_array_equal(target.table, expected)

    patches_only = trained_toy(prefix_positions=False)
    expected = resample_grid(patches_only.positions.table, (4, 4), (6, 2), "bicubic")
    np.testing.assert_array_equal(patches_only.resized((24, 8), "bicubic").positions.table, expected)

    axes = trained_toy(position_embedding="learned_2d")
    larger = axes.resized((24, 8)).positions
    for source, target in ((axes.positions.rows, larger.rows), (axes.positions.columns, larger.columns)):
        source, target = np.asarray(source), np.asarray(target)
        places = np.linspace(0, 3, len(target))
        expected = np.stack([np.interp(places, range(4), channel) for channel in source.T], axis=1)
        np.testing.assert_allclose(target, expected, atol=1e-6)
    np.testing.assert_array_equal(larger.prefix, axes.positions.prefix)

    fixed = SinCosPositions((6, 2), 1)
    fixed.build((None, 13, 12))
    larger = trained_toy(position_embedding="sincos_2d").resized((24, 8))
    np.testing.assert_array_equal(larger.positions.table, fixed.table)
    relative = trained_toy(position_embedding="relative")
    assert relative.resized(16).config == relative.config
    with pytest.raises(ValueError, match="cannot be resampled"):
        relative.resized(24)


EXCLUDED = [
    ({"image_size": 18}, r"\(18, 18\).*image_size=16 or image_size=20"),
    ({"image_size": 0}, "Received: 0"),
    ({"pooling": "cls"}, "Received: 'cls'"),
    ({"num_heads": 5}, "num_heads=5, width=12"),
    ({"class_token": False}, "pooling='token'"),
    ({"gelu": "exact"}, "Received: 'exact'"),
    ({"position_embedding": "learned"}, "Received: 'learned'"),
    ({"position_placement": "all"}, "Received: 'all'"),
    ({"register_tokens": 1.5}, "Received: 1.5"),
    ({"distillation": True, "class_token": False}, "omit class_token"),
    ({"distillation": True, "pooling": "gap"}, "use pooling='token'"),
    ({"distillation": True, "representation_size": 6}, "omit representation_size"),
    ({"distillation": True, "norm_after_pooling": True}, "norm_after_pooling"),
    ({"norm_after_pooling": True, "pooling": "none"}, "other than 'none'"),
    ({"position_embedding": "none", "position_placement": "shared"}, "use position_placement="),
    ({"position_embedding": "relative", "position_placement": "every_layer"}, "position_placement=.stem."),
    ({"position_placement": "shared", "prefix_positions": False}, "use prefix_positions=True"),
    ({"position_embedding": "relative", "axial": True}, "use another position_embedding"),
    ({"position_embedding": "learned_2d", "width": 9}, "width=9"),
    ({"position_embedding": "sincos_2d", "width": 6}, "width=6"),
    ({"resnet_stages": (1, 1)}, r"Received: patch_size=\(4, 4\)"),
    ({"resnet_stages": (0,)}, r"Received: \(0,\)"),
    ({"resnet_stages": (1,), "resnet_form": "v3"}, "Received: 'v3'"),
    ({"resnet_stages": (1,), "resnet_form": "paper"}, "Received: 'paper'"),
    ({"depth": 0}, "Received: 0"),
    ({"preprocessing": {"image_size": 8, "resize": "crop"}}, "Received: 'crop'"),
]


@pytest.mark.parametrize("changes,message", EXCLUDED)
def test_options_that_exclude_each_other(toy, changes, message):
    with pytest.raises(ValueError, match=message):
        toy(**changes)
