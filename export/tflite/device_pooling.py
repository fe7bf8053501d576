"""One vector of an image's tokens, in operations that accelerators of phones know. N tokens, D width, K heads."""

import tensorflow as tf

from keras_vit.layers.pooling import AttentionPooling, TokenPooling


def pooled_tokens(model, tokens):
    """The last block's tokens normalized and pooled as the model does: (1, N, D) -> (1, D)."""
    norm = model.encoder.norm or (lambda x: x)
    if isinstance(model.pooling, TokenPooling):
        # Only what is read is normalized; a slice stays within delegates where picking an index does not.
        read = norm(rows(tokens, 0, model.pooling.count))  # (1, count, D)
        return tf.reshape(read, (1, -1)) if model.pooling.count == 1 else tf.reduce_mean(read, axis=1)
    if isinstance(model.pooling, AttentionPooling):
        return _attended(model.pooling, norm(tokens))
    return model.pooling(norm(tokens))


def _attended(pooling, tokens):
    """`AttentionPooling`. Its query is a constant: with the keys' kernel it makes one that gives all logits.

    The keys' biases add the same to the logits of all tokens, which the softmax does not see.
    """
    length, width = tokens.shape[1:]
    heads, head = pooling.num_heads, width // pooling.num_heads
    with tf.init_scope():  # now, and not in the graph
        query = tf.reshape(pooling.query(pooling.probe), (heads, head)) / head**0.5
        kernel = tf.reduce_sum(tf.reshape(pooling.key.kernel, (width, heads, head)) * query, axis=-1)  # (D, K)
    logits = tf.transpose(tf.matmul(tokens, kernel.numpy()), (0, 2, 1))  # (1, K, N)
    weights = tf.reshape(tf.nn.softmax(logits), (1, heads, 1, length))
    value = tf.transpose(tf.reshape(pooling.value(tokens), (1, length, heads, head)), (0, 2, 1, 3))  # (1, K, N, d)
    mixed = tf.reshape(tf.matmul(weights, value), (1, 1, width))
    pooled = pooling.out(mixed)
    return tf.reshape(pooled + pooling.mlp(pooling.norm(pooled)), (1, width))


def rows(tokens, start, count):
    """Some of the tokens, (1, count, D)."""
    return tf.slice(tokens, (0, start, 0), (1, count, tokens.shape[-1]))
