"""What `remat` saves, by the TPU's compiler: a recomputation that XLA merges away again would be silent."""

import functools

import keras

import keras_vit
from keras_vit.recipes.preflight import preflight


@functools.cache
def temporaries(remat=None, dropout=0.0, depth=3):
    """Bytes, of a training step whose activations are larger than a chip's fast memory."""
    model = keras_vit.VisionTransformer(
        image_size=112,
        patch_size=8,
        depth=depth,
        width=128,
        mlp_dim=512,
        num_heads=2,
        num_classes=10,
        dropout=dropout,
        remat=remat,
        dtype="mixed_bfloat16",
    )
    model.compile("sgd", keras.losses.SparseCategoricalCrossentropy(from_logits=True))
    (step,) = preflight(model, "v5e:1", 512, kinds=("training",)).steps
    assert step.problems == ()
    return step.memory["temp"]


def test_recomputation_saves_memory_on_a_tpu():
    """Measured: 0.59; 1 if nothing were recomputed."""
    assert temporaries("block", 0.1) < 0.7 * temporaries(dropout=0.1)


def test_dropout_keeps_no_masks():
    """Measured: 1.28, of which the random bits of one layer are most; 1.58 if masks were kept."""
    assert temporaries(dropout=0.1) < 1.4 * temporaries()


def test_another_recomputed_block_costs_no_more_than_its_input():
    """Its weights' gradients are not put off, which would keep hidden tokens; XLA has the freedom to. Measured: 1.1."""
    tokens = 2 * 512 * 197 * 128
    assert temporaries("block", 0.1) - temporaries("block", 0.1, depth=1) < 1.4 * 2 * tokens
