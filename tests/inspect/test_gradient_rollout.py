import numpy as np
import pytest

from keras_vit.inspect import attention_rollout, gradient_rollout
from keras_vit.inspect.attention import _attention_and_gradients, resize_to_images


def numeric_relevance(model, images, label, step=1e-3):
    """Relevance by central differences of a logit with respect to each attention weight; for a model with one block."""
    block = model.encoder.blocks[0]
    tokens = model.add_tokens(model.embed(images))
    attend = block.attention
    _, weights = block(tokens, return_attention=True)
    weights = np.asarray(weights, "float64")
    normed = block.norm_attention(tokens)
    query_key_value = np.asarray(attend.qkv(normed), "float64")
    batch, length, width = tokens.shape
    heads = attend.num_heads
    value = query_key_value[..., 2 * width :].reshape(batch, length, heads, -1).transpose(0, 2, 1, 3)

    def logit(weights):
        mixed = (weights @ value).transpose(0, 2, 1, 3).reshape(batch, length, width)
        after = tokens + attend.out(mixed.astype("float32"))
        after = after + block.mlp(block.norm_mlp(after))
        return np.asarray(model.head(model.pool(model.encoder.norm(after))))[:, label]

    gradients = np.zeros_like(weights)
    for head, i, j in np.ndindex(weights.shape[1:]):
        changed = [weights.copy(), weights.copy()]
        changed[0][:, head, i, j] += step
        changed[1][:, head, i, j] -= step
        gradients[:, head, i, j] = (logit(changed[0]) - logit(changed[1])) / (2 * step)
    return np.maximum(weights * gradients, 0).mean(axis=1)


@pytest.mark.slow
def test_equals_central_differences(trained_toy):
    model = trained_toy(depth=1, image_size=8, num_heads=2)
    images = np.random.default_rng(0).uniform(-1, 1, (2, 8, 8, 3)).astype("float32")
    rows = numeric_relevance(model, images, label=3)[:, 0, 1:]
    expected = rows / rows.max(axis=-1, keepdims=True)
    found = gradient_rollout(model, images, [3, 3])  # bilinear: the centers of 4-pixel patches are between pixels
    corners = found[:, ::7, ::7].reshape(2, 4)  # (B, h*w)
    np.testing.assert_allclose(corners, expected, atol=2e-2)


@pytest.mark.parametrize("changes", [{}, {"pooling": "gap"}, {"pooling": "map"}, {"position_placement": "every_layer"}])
def test_maps_depend_on_the_class(trained_toy, images, changes):
    model = trained_toy(**changes)
    likeliest = np.argmax(model(images), axis=-1)
    found = gradient_rollout(model, images)
    model.trainable = False  # changes nothing
    np.testing.assert_allclose(found, gradient_rollout(model, images, likeliest), atol=1e-6)
    other = gradient_rollout(model, images, (likeliest + 1) % 5)
    assert found.shape == other.shape == (3, 16, 16) and np.abs(found - other).max() > 0.1
    assert found.min() >= 0 and found.max() <= 1 + 1e-6
    assert np.abs(found - attention_rollout(model, images)).max() > 0.05


@pytest.mark.parametrize("pooling,share", [("token", 0.0), ("token_and_gap", 0.5), ("gap", 1.0)])
def test_equals_the_product_of_whole_matrices(trained_toy, images, pooling, share):
    """R = (I + A of the last layer) ... (I + A of the first), of the paper's equations 5 and 6; three layers."""
    model = trained_toy(pooling=pooling, depth=3, class_token=pooling != "gap")
    prefix, expected = model.prefix_tokens, []
    layers = _attention_and_gradients(model, images, None, [])
    for image in range(len(images)):
        product = np.eye(layers[0][0].shape[-1])
        for attention, gradient in layers:
            product = product + np.clip(attention[image] * gradient[image], 0, None).mean(axis=0) @ product
        product -= np.eye(len(product))
        row = share * product[prefix:].mean(axis=0) + (1 - share) * product[0]
        expected.append(row[prefix:] / row[prefix:].max())
    np.testing.assert_allclose(gradient_rollout(model, images), resize_to_images(np.array(expected), model), atol=1e-5)


def test_patches_beside_the_class_token_count(trained_toy, images):
    """DINOv2's heads read both. Here only the patches decide."""
    model = trained_toy(pooling="token_and_gap", depth=1)
    kernel = model.head.kernel.numpy()
    model.head.kernel.assign(np.where(np.arange(len(kernel))[:, None] < len(kernel) // 2, 0, kernel))
    assert gradient_rollout(model, images).max(axis=(1, 2)) == pytest.approx(np.ones(3), abs=0.2)


@pytest.mark.parametrize(
    "changes,classes,message",
    [
        *(({}, classes, "3 integers from 0 to 4") for classes in ([1], [0, 1, 5], [0.0, 1.0, 2.0], [-1, 0, 0])),
        ({"num_classes": 0}, None, "no head"),
        ({"pooling": "none"}, None, "every token"),
        ({"axial": True}, None, "axial attention"),
    ],
)
def test_wrong_classes_and_models(toy, images, changes, classes, message):
    with pytest.raises(ValueError, match=message):
        gradient_rollout(toy(**changes), images, classes)
