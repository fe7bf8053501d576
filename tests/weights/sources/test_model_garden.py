"""Checkpoints and models of tf-models-official, created here under its names from a model of keras_vit."""

from types import SimpleNamespace

import numpy as np
import pytest
import tensorflow as tf
from goldens import DATA, golden_io

import keras_vit


def test_logits_equal_those_of_tf_models_official():
    """Checkpoint and logits by its own code: tools/model_goldens.py."""
    model, io = keras_vit.load(DATA / "model_garden_vit" / "ckpt", num_heads=3), golden_io("model_garden_vit")
    assert model.pre_logits is not None and model.num_classes == 5
    np.testing.assert_allclose(model(io["images"]), io["logits"], atol=1e-5)


def attention_arrays(block) -> dict:
    """A block's attention as in `keras.layers.MultiHeadAttention`: (D, K, d), (K, d) and (K, d, D), (D,)."""
    kernels, biases = (np.split(np.asarray(x), 3, axis=-1) for x in block.attention.qkv.weights)
    out_kernel, out_bias = (np.asarray(x) for x in block.attention.out.weights)
    parts = {
        name: [kernel.reshape(-1, 3, 4), bias.reshape(3, 4)]
        for name, kernel, bias in zip(("query", "key", "value"), kernels, biases)
    }
    return {**parts, "output": [out_kernel.reshape(3, 4, -1), out_bias]}


def garden(model) -> dict:
    """The nested variables of a checkpoint of tf-models-official."""

    def pair(layer, *names):
        return {name: tf.Variable(x) for name, x in zip(names, layer.weights if hasattr(layer, "weights") else layer)}

    dense, norm, blocks = ("kernel", "bias"), ("gamma", "beta"), []
    for block in model.encoder.blocks:
        attention = {f"_{name}_dense": pair(arrays, *dense) for name, arrays in attention_arrays(block).items()}
        layers = {"_attention_layer_norm": pair(block.norm_attention, *norm), "_attention_layer": attention}
        layers |= {"_output_layer_norm": pair(block.norm_mlp, *norm)}
        layers |= {"_intermediate_dense": pair(block.mlp.hidden, *dense), "_output_dense": pair(block.mlp.out, *dense)}
        for name, scale in (("attn", block.scale_attention), ("mlp", block.scale_mlp)):
            layers[f"_layer_scale_{name}"] = {"layerscale_gamma": tf.Variable(scale.gamma[None, None])}
        blocks.append(layers)
    encoder = {"_pos_embed": {"pos_embedding": tf.Variable(model.positions.table)}, "_encoder_layers": blocks}
    layers = [pair(model.patch_embedding.projection, *dense)]
    layers += [encoder | {"_norm": pair(model.encoder.norm, *norm)}, pair(model.pre_logits, *dense)]
    return {f"layer_with_weights-{i}": layer for i, layer in enumerate(layers)}, pair(model.head, *dense)


def tracked(node):
    if isinstance(node, dict):
        return tf.train.Checkpoint(**{name: tracked(part) for name, part in node.items()})
    return [tracked(part) for part in node] if isinstance(node, list) else node


@pytest.mark.slow
def test_checkpoint_of_nested_models_with_layer_scale(trained_toy, images, tmp_path):
    """The golden is as its trainer saves."""
    model = trained_toy(pooling="gap", representation_size=7, layer_scale=0.1)
    backbone, head = garden(model)
    tree = {"model": {"layer_with_weights-0": backbone, "layer_with_weights-1": head}}
    prefix = tracked(tree).save(str(tmp_path / "ckpt"))
    for path in (prefix, f"{prefix}.index"):
        loaded = keras_vit.load(path)
        assert (loaded.config.gelu, loaded.config.pooling) == ("tanh", "gap")
        np.testing.assert_allclose(loaded(images), model(images), atol=1e-6)
    assert loaded.preprocessing.mean == (0.485, 0.456, 0.406)


def test_model_in_memory(trained_toy, images):
    model = trained_toy()
    block, dense, norm = "encoder_1/transformer_encoder_block{}/", ("kernel", "bias"), ("gamma", "beta")
    groups = [
        ("conv2d_1/", model.patch_embedding.projection.weights, dense),
        ("cls_1/", model.class_token.weights, ("cls",)),
        ("encoder_1/posembed_input/", model.positions.weights, ("pos_embedding",)),
        ("encoder_1/layer_normalization/", model.encoder.norm.weights, norm),
        ("dense_1/", model.head.weights, dense),
    ]
    for i, layer in enumerate(model.encoder.blocks):
        path = block.format(f"_{i}" if i else "")
        for name, arrays in attention_arrays(layer).items():
            groups.append((f"{path}self_attention/{name.replace('output', 'attention_output')}/", arrays, dense))
        groups.append((f"{path}self_attention_layer_norm/", layer.norm_attention.weights, norm))
        groups.append((f"{path}output_layer_norm/", layer.norm_mlp.weights, norm))
        groups.append((f"{path}intermediate/", layer.mlp.hidden.weights, dense))
        groups.append((f"{path}output/", layer.mlp.out.weights, dense))
    weights = [tf.Variable(x, name=path + leaf) for path, arrays, leaves in groups for leaf, x in zip(leaves, arrays)]
    assert weights[0].name == "conv2d_1/kernel:0"
    peer = SimpleNamespace(name="classification_model", weights=weights)
    np.testing.assert_allclose(keras_vit.load(peer)(images), model(images), atol=1e-6)
