"""Relative positions in attention. B batch, K heads, N tokens, d head width."""

import keras
from keras import ops

from keras_vit.layers.axial_attention import by_distance


@keras.saving.register_keras_serializable(package="keras_vit")
class RelativePositions(keras.layers.Layer):
    """1-D relative attention of the paper's appendix D.4: logits q_n . e_(n - m), to be added to q_n . k_m.

    The embeddings e of all distances between -(N - 1) and N - 1 act as keys; the heads share them ("Self-Attention with
    Relative Position Representations", arXiv 1803.02155). A class token has index 0 in the
    sequence. Patches are numbered row by row, so a table belongs to one image size.

    Input: queries (B, K, N, d), scaled by 1 / sqrt(d). Output: logits (B, K, N, N).
    """

    def build(self, input_shape):
        tokens, head_width = input_shape[2:]
        self.table = self.add_weight(
            shape=(2 * tokens - 1, head_width),
            initializer=keras.initializers.RandomNormal(stddev=0.02),
            name="table",
        )

    def call(self, query):
        embeddings = by_distance(ops.cast(self.table, query.dtype))  # (N, N, d), e_(n - m) at (m, n)
        return ops.einsum("bknd,mnd->bknm", query, embeddings)  # (B, K, N, N)

    def compute_output_shape(self, input_shape):
        return (*input_shape[:-1], input_shape[-2])

    def get_config(self):
        # Keras's automatic config would reject a `dtype` that is a policy.
        return super().get_config()
