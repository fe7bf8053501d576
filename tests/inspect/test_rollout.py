import numpy as np
import pytest
from goldens import golden_file, golden_io

import keras_vit
from keras_vit import inspect
from keras_vit.inspect.attention import resize_to_images, rollout


def test_equals_loops_over_attention_of_hugging_face(tmp_path):
    """From its attention weights, and from ours for its checkpoint; 64 pixels, patches of 16."""
    io = golden_io("hf_vit")
    expected = np.stack([_by_loops(layers) for layers in io["attentions"]])  # (2, 16)
    np.testing.assert_allclose(rollout(io["attentions"]), expected, atol=1e-5)
    model = keras_vit.load(golden_file(tmp_path, "hf_vit"), num_heads=3)
    np.testing.assert_allclose(rollout(model.attention_maps(io["images"])), expected, atol=1e-5)


def _by_loops(layers):
    """The contributions of the patches of one image, from (depth, K, N, N)."""
    length = layers.shape[-1]
    reach = np.eye(length)  # row i: contributions to token i
    for heads in layers:
        step = np.zeros((length, length))
        for i in range(length):
            for j in range(length):
                step[i, j] = sum(head[i, j] for head in heads) / len(heads) + (i == j)
            step[i] /= step[i].sum()
        reach = np.array(
            [[sum(step[i, k] * reach[k, j] for k in range(length)) for j in range(length)] for i in range(length)]
        )
    return reach[0, 1:] / reach[0, 1:].max()


def joint(length):
    """Attention of one layer and head, and its average with the identity."""
    attention = np.random.default_rng(0).dirichlet(np.ones(length), (1, 1, 1, length))
    return attention, (attention[0, 0, 0] + np.eye(length)) / 2


def test_pooled_patches_and_the_class_token():
    attention, rows = joint(4)
    expected = rows.mean(axis=0)
    np.testing.assert_allclose(rollout(attention, prefix_tokens=0)[0], expected / expected.max())
    attention, rows = joint(6)  # the second of two prefix tokens is a register
    for patch_share, expected in (
        (1.0, rows[2:].mean(axis=0)[2:]),
        (0.5, (rows[0] + rows[2:].mean(axis=0))[2:]),
    ):
        found = rollout(attention, prefix_tokens=2, patch_share=patch_share)[0]
        np.testing.assert_allclose(found, expected / expected.max())


@pytest.mark.parametrize("changes", [{}, {"pooling": "gap", "register_tokens": 2}, {"image_size": (8, 24)}])
def test_maps_have_the_size_of_the_images_and_are_in_range(trained_toy, changes):
    model = trained_toy(**changes)
    images = np.random.default_rng(0).uniform(-1, 1, (2, *model.image_size, 3)).astype("float32")
    maps = keras_vit.attention_rollout(model, images)
    assert maps.shape == (2, *model.image_size)
    assert maps.min() >= 0 and maps.max() <= 1 + 1e-6
    assert maps.std() > 0.01


def test_without_class_token_registers_are_ignored(trained_toy, images):
    model = trained_toy(pooling="none", class_token=False, register_tokens=2)
    expected = rollout(model.attention_maps(images), prefix_tokens=2, patch_share=1.0)
    np.testing.assert_allclose(keras_vit.attention_rollout(model, images), resize_to_images(expected, model), atol=1e-6)


FUNCTIONS = (
    *(inspect.attention_rollout, inspect.attention_distance, inspect.gradient_rollout, inspect.layer_features),
    *(inspect.filter_components, inspect.position_similarity),  # without images
)


@pytest.mark.parametrize("function", FUNCTIONS)
def test_other_models_raise(function):
    images = [np.zeros((1, 16, 16, 3), "float32")] * (function in FUNCTIONS[:4])
    with pytest.raises(ValueError, match="Received: a BiT"):
        function(keras_vit.BiT(stages=(1,), width_factor=0.5, image_size=16, num_classes=2), *images)
