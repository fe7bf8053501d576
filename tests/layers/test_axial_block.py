import keras
import numpy as np
import pytest
import tensorflow as tf

from keras_vit.layers.axial_block import AxialBlock

H, W, D, K = 2, 3, 12, 3
X = np.random.default_rng(0).standard_normal((2, 2 + H * W, D)).astype("float32")


def random_block(prefix_tokens, **changes):
    """A block whose weights are all random, and tokens for it."""
    block = AxialBlock((H, W), prefix_tokens, **{"num_heads": K, "mlp_dim": 24, **changes})
    tokens = X[:, 2 - prefix_tokens :]
    block(tokens)
    random = np.random.default_rng(7)
    for weight in block.weights:
        weight.assign(weight + 0.3 * random.standard_normal(weight.shape))
    return block, tokens


def numpy_encoder_block(block, sequence, mask):
    """Equations 2 and 3 of the paper for one sequence (S, D), in float64; and its attention (K, S, S)."""
    x = np.asarray(sequence, "float64")
    qkv = _dense(block.attention.qkv, _norm(block.norm_attention, x))
    heads, outputs = [], []
    for head in range(K):
        query, key, value = (qkv[:, i * D + head * D // K :][:, : D // K] for i in range(3))
        weights = np.exp(query @ key.T / np.sqrt(D / K)) * mask
        heads.append(weights / weights.sum(axis=-1, keepdims=True))
        outputs.append(heads[-1] @ value)
    x = x + _dense(block.attention.out, np.concatenate(outputs, axis=-1))
    hidden = _dense(block.mlp.hidden, _norm(block.norm_mlp, x))
    hidden = 0.5 * hidden * (1 + np.tanh(np.sqrt(2 / np.pi) * (hidden + 0.044715 * hidden**3)))
    return x + _dense(block.mlp.out, hidden), np.stack(heads)


def _norm(layer, x):
    gamma, beta = layer.get_weights()
    return (x - x.mean(-1, keepdims=True)) / np.sqrt(x.var(-1, keepdims=True) + 1e-6) * gamma + beta


def _dense(layer, x):
    kernel, bias = layer.get_weights()
    return x @ kernel + bias


def numpy_half(block, tokens, lines, prefix_tokens):
    """Runs each line (a list of token numbers) with the prefix tokens; averages these. Also the map (K, N, N)."""
    output, attention = np.zeros(tokens.shape), np.zeros((K, len(tokens), len(tokens)))
    for line in lines:
        numbers = [*range(prefix_tokens), *line]
        after, weights = numpy_encoder_block(block, tokens[numbers], np.ones((len(numbers), len(numbers))))
        for i, n in enumerate(numbers):
            fraction = 1 / len(lines) if n < prefix_tokens else 1
            output[n] += fraction * after[i]
            for j, m in enumerate(numbers):
                attention[:, n, m] += fraction * weights[:, i, j]
    return output, attention


def test_without_prefix_tokens_it_equals_masked_attention():
    block, tokens = random_block(0)
    row, column = np.divmod(np.arange(H * W), W)
    for image, output in zip(tokens, np.asarray(block(tokens))):
        after_rows, _ = numpy_encoder_block(block.row, image, row[:, None] == row[None])
        expected, _ = numpy_encoder_block(block.column, after_rows, column[:, None] == column[None])
        np.testing.assert_allclose(output, expected, atol=1e-4)


@pytest.mark.parametrize("prefix_tokens", [0, 1, 2])
def test_equals_the_computation_line_by_line(prefix_tokens):
    block, tokens = random_block(prefix_tokens)
    numbers = prefix_tokens + np.arange(H * W).reshape(H, W)
    outputs, maps = block(tokens, return_attention=True)
    assert maps.shape == (2, K, prefix_tokens + H * W, prefix_tokens + H * W)
    for image, output, attention in zip(tokens, np.asarray(outputs), np.asarray(maps)):
        after_rows, rows = numpy_half(block.row, image, numbers, prefix_tokens)
        expected, columns = numpy_half(block.column, after_rows, numbers.T, prefix_tokens)
        np.testing.assert_allclose(output, expected, atol=1e-4)
        np.testing.assert_allclose(attention, columns @ rows.mean(axis=0), atol=1e-5)
    np.testing.assert_allclose(np.sum(maps, axis=-1), 1, atol=1e-5)
    np.testing.assert_array_equal(block(tokens), outputs)


@pytest.mark.slow
def test_every_output_depends_on_every_token():
    block, tokens = random_block(1)
    x = tf.constant(tokens[:1])
    with tf.GradientTape() as tape:
        tape.watch(x)
        output = block(x)[0]
    jacobian = tape.jacobian(output, x)[:, :, 0]  # (N, D, N, D)
    assert (np.abs(jacobian).max(axis=(1, 3)) > 1e-6).all()


def test_dropout_is_independent_and_reproducible():
    options = {"dropout": 0.3, "attention_dropout": 0.2, "stochastic_depth": 0.3, "seed": 5}
    (first, tokens), (second, _) = (random_block(1, **options) for _ in "ab")
    second.set_weights(first.get_weights())
    once = first(tokens, training=True)
    np.testing.assert_array_equal(once, second(tokens, training=True))
    assert not np.array_equal(once, first(tokens, training=True))
    sites = ("dropout", "drop_attention", "drop_mlp", "dropout_hidden", "dropout_out")
    seeds = [layer.seed for layer in first._flatten_layers() if layer.name in sites]
    assert len(seeds) == len(set(seeds)) == 2 * 6
    assert min(seeds) == 5


def test_both_halves_share_the_config():
    block, tokens = random_block(1, gelu="erf", epsilon=1e-3, stochastic_depth=0.25)
    for half in (block.row, block.column):
        assert half.mlp.gelu == "erf" and half.norm_mlp.epsilon == 1e-3 and half.drop_mlp.rate == 0.25
    copy = AxialBlock.from_config(block.get_config())
    assert copy.get_config() == block.get_config()
    copy.build(tokens.shape)
    copy.set_weights(block.get_weights())
    np.testing.assert_array_equal(copy(tokens), block(tokens))
    assert [w.path.split("/", 1)[1] for w in copy.weights] == [w.path.split("/", 1)[1] for w in block.weights]


def test_one_trace_for_all_batch_sizes():
    block, tokens = random_block(1)
    traces = []

    @tf.function(input_signature=[tf.TensorSpec((None, 1 + H * W, D))])
    def run(x):
        traces.append(1)
        outputs, maps = block(x, return_attention=True)
        assert outputs.shape.as_list() == [None, 1 + H * W, D]
        assert maps.shape.as_list()[1:] == [K, 1 + H * W, 1 + H * W]
        return outputs

    for batch in (1, 2):
        np.testing.assert_allclose(run(tokens[:batch]), block(tokens[:batch]), atol=1e-5)
    assert len(traces) == 1


@pytest.mark.slow
@pytest.mark.parametrize("dtype", ["float32", "mixed_bfloat16"])
def test_training_reduces_the_loss(dtype):
    inputs = keras.Input((1 + H * W, D))
    block = AxialBlock((H, W), 1, num_heads=K, mlp_dim=24, dropout=0.1, stochastic_depth=0.1, seed=1, dtype=dtype)
    outputs = keras.layers.Dense(2, dtype="float32")(block(inputs)[:, 0])
    model = keras.Model(inputs, outputs)
    loss = keras.losses.SparseCategoricalCrossentropy(from_logits=True)
    model.compile(keras.optimizers.Adam(2e-2), loss, run_eagerly=True)  # tracing would take most of the time
    losses = model.fit(X[:, 1:], np.array([0, 1]), epochs=10, verbose=0).history["loss"]
    assert np.isfinite(losses).all() and losses[-1] < 0.3 * losses[0]


def test_mixed_precision():
    block, tokens = random_block(1)
    mixed = AxialBlock((H, W), 1, num_heads=K, mlp_dim=24, dtype="mixed_bfloat16")
    mixed.build(tokens.shape)
    mixed.set_weights(block.get_weights())
    outputs, maps = mixed(tokens, return_attention=True)
    for result in (outputs, maps):
        assert keras.backend.standardize_dtype(result.dtype) == "bfloat16"
    np.testing.assert_allclose(np.asarray(outputs, "float32"), block(tokens), atol=0.3)
    np.testing.assert_allclose(np.sum(np.asarray(maps, "float32"), axis=-1), 1, atol=0.02)
