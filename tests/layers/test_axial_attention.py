import keras
import numpy as np
import pytest
import tensorflow as tf

from keras_vit.layers.axial_attention import AxialAttention, by_distance

H, W, C, K = 5, 3, 64, 4
MAPS = np.random.default_rng(0).standard_normal((2, H, W, C)).astype("float32")


def random_layer(axis, **options):
    layer = AxialAttention(axis, K, **options)
    layer.build((None, H, W, C))
    random = np.random.default_rng(7)
    for weight in layer.weights:
        weight.assign(weight + 0.3 * random.standard_normal(weight.shape))
    return layer


def numpy_group_norm(layer, line):
    """One line (L, C): each of 32 groups of neighboring channels, over the whole line."""
    groups = np.split(line, 32, axis=-1)
    line = np.concatenate([(g - g.mean()) / np.sqrt(g.var() + 1e-4) for g in groups], axis=-1)
    gamma, beta = layer.get_weights()
    return line * gamma + beta


def numpy_line(layer, line):
    """Equation 4 of arXiv 2003.07853 for one line (L, C), place by place and head by head, in float64."""
    d = C // K
    qkv = numpy_group_norm(layer.norm_qkv, np.asarray(line, "float64") @ layer.qkv.get_weights()[0])
    table = np.asarray(layer.relative, "float64")
    places = range(len(line))
    output = np.zeros(line.shape)
    for head in range(K):
        query, key, value = np.split(qkv[:, head * 2 * d : (head + 1) * 2 * d], (d // 2, d), axis=-1)
        for o in places:
            relative = [np.split(table[p - o + len(line) - 1], (d // 2, d)) for p in places]
            logits = [query[o] @ key[p] + query[o] @ relative[p][0] + key[p] @ relative[p][1] for p in places]
            weights = np.exp(logits) / np.exp(logits).sum()
            output[o, head * d : (head + 1) * d] = sum(weights[p] * (value[p] + relative[p][2]) for p in places)
    return numpy_group_norm(layer.norm_out, output)


@pytest.mark.parametrize("axis", ["height", "width"])
def test_equals_the_equation_line_by_line(axis):
    layer = random_layer(axis)
    output = np.asarray(layer(MAPS))
    for maps, result in zip(MAPS, output):
        lines = range(W) if axis == "height" else range(H)
        for i in lines:
            line, got = (maps[:, i], result[:, i]) if axis == "height" else (maps[i], result[i])
            np.testing.assert_allclose(got, numpy_line(layer, line), atol=2e-4)


def test_height_equals_width_on_the_transposed_map():
    height, width = random_layer("height"), AxialAttention("width", K)
    width.build((None, W, H, C))
    width.set_weights(height.get_weights())
    swapped = MAPS.transpose(0, 2, 1, 3)
    np.testing.assert_allclose(height(MAPS), np.asarray(width(swapped)).transpose(0, 2, 1, 3), atol=1e-5)


def test_without_relative_positions_order_does_not_matter():
    layer = random_layer("height")
    order = [3, 0, 4, 1, 2]
    assert np.abs(np.asarray(layer(MAPS))[:, order] - np.asarray(layer(MAPS[:, order]))).max() > 0.1
    layer.relative.assign(np.zeros(layer.relative.shape))
    np.testing.assert_allclose(np.asarray(layer(MAPS))[:, order], layer(MAPS[:, order]), atol=1e-5)


def test_config_round_trip_and_shapes():
    layer = AxialAttention("width", K, epsilon=1e-3, dtype="mixed_bfloat16", name="mine")
    copy = AxialAttention.from_config(layer.get_config())
    assert copy.get_config() == layer.get_config() and copy.norm_qkv.epsilon == 1e-3
    assert layer.compute_output_shape(MAPS.shape) == layer(MAPS).shape == MAPS.shape
    assert layer.relative.shape == (2 * W - 1, 2 * C // K)


def test_initial_values_are_those_of_scenic():
    layer = AxialAttention("height", 8)
    layer.build((None, 56, 56, 128))
    np.testing.assert_allclose(np.std(layer.qkv.kernel), 1 / 128, rtol=0.03)
    np.testing.assert_allclose(np.std(layer.relative), 1 / 16, rtol=0.05)


def test_one_trace_for_all_batch_sizes():
    layer = random_layer("height")
    traces = []

    @tf.function(input_signature=[tf.TensorSpec((None, H, W, C))])
    def run(x):
        traces.append(1)
        output = layer(x)
        assert output.shape.as_list() == [None, H, W, C]
        return output

    for batch in (1, 2):
        np.testing.assert_allclose(run(MAPS[:batch]), layer(MAPS[:batch]), atol=1e-5)
    assert len(traces) == 1


def test_mixed_precision_and_finite_gradients():
    layer, mixed = random_layer("height"), random_layer("height", dtype="mixed_bfloat16")
    mixed.set_weights(layer.get_weights())
    with tf.GradientTape() as tape:
        output = mixed(MAPS)
        loss = tf.reduce_sum(tf.cast(output, "float32") ** 2)
    assert keras.backend.standardize_dtype(output.dtype) == "bfloat16"
    difference = np.abs(np.asarray(output, "float32") - np.asarray(layer(MAPS)))
    assert 1e-5 < difference.mean() < 0.05
    for weight, gradient in zip(mixed.trainable_weights, tape.gradient(loss, mixed.trainable_weights)):
        assert weight.dtype == "float32"
        assert np.isfinite(gradient).all() and np.any(gradient), weight.path


@pytest.mark.parametrize("length", [1, 2, 5])
def test_embeddings_by_distance(length):
    table = np.random.default_rng(0).standard_normal((2 * length - 1, 3)).astype("float32")
    pairs = np.asarray(by_distance(table))
    for o in range(length):
        for p in range(length):
            np.testing.assert_array_equal(pairs[o, p], table[p - o + length - 1])


@pytest.mark.parametrize(
    "axis,shape,message",
    [
        ("depth", (None, H, W, C), "'height' or 'width'. Received: 'depth'"),
        ("height", (None, None, W, C), "both must be known when it is built"),
        ("width", (None, None, W, C), "both must be known when it is built"),
        ("height", (None, H, W, 48), "Received: 48 channels, num_heads=4. Use a multiple of 32"),
    ],
)
def test_bad_input(axis, shape, message):
    with pytest.raises(ValueError, match=message):
        AxialAttention(axis, K).build(shape)


def test_heads_that_do_not_divide_the_channels():
    with pytest.raises(ValueError, match="64 channels, num_heads=5. Use a multiple of 160"):
        AxialAttention("width", 5).build(MAPS.shape)
