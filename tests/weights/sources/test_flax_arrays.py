"""Weights of JAX as other versions and tools write them: training states, scanned blocks, older names."""

import numpy as np
import pytest
from goldens import golden_file, golden_io, golden_weights, write_arrays

import keras_vit
from keras_vit.weights import open_checkpoint

BLOCKS = "Transformer/encoderblock_{}/"
PRE_LINEN = {
    "MultiHeadDotProductAttention_0": "MultiHeadDotProductAttention_1",
    "LayerNorm_1": "LayerNorm_2",
    "MlpBlock_0": "MlpBlock_3",
}


def prefixed(prefix, *others):
    """The arrays under a prefix, and copies under those of an optimizer, with its step counter."""

    def change(arrays):
        moments = {f"{other}{name}": 7 * array for other in others for name, array in arrays.items()}
        steps = {f"{other}count": np.array(5) for other in others}
        return {f"{prefix}{name}": array for name, array in arrays.items()} | moments | steps

    return change


def pre_linen(arrays):
    return {"/".join(PRE_LINEN.get(part, part) for part in name.split("/")): x for name, x in arrays.items()}


def scanned(arrays):
    """The blocks' arrays stacked, as by `nn.scan`."""
    first = [name for name in arrays if BLOCKS.format(0) in name]
    stacks = {name: np.stack([arrays[name.replace("block_0", f"block_{i}")] for i in range(2)]) for name in first}
    rest = {name: x for name, x in arrays.items() if "encoderblock_" not in name}
    return rest | {name.replace("block_0", "block"): x for name, x in stacks.items()}


FILES = {
    "params": (prefixed("params/"), "params/Transformer/encoderblock_0/LayerNorm_0/bias"),
    "old optimizer": (prefixed("opt/target/", "opt/state/param_states/"), "opt/target/cls"),
    "target": (prefixed("target/"), "target/cls"),
    "training state": (prefixed("params/", "opt/0/mu/", "opt/0/nu/"), "opt/0/mu/count"),
    "pre-linen": (pre_linen, "Transformer/encoderblock_0/MlpBlock_3/Dense_0/kernel"),
    "scanned": (scanned, "Transformer/encoderblock/LayerNorm_0/bias"),
}


@pytest.mark.parametrize("kind", FILES)
def test_variants_of_files_compute_the_same(kind, tmp_path):
    change, name = FILES[kind]
    file = write_arrays(tmp_path / "x.npz", change(golden_weights("vit_jax_token")))
    assert name in np.load(file).files
    model, io = keras_vit.load(file), golden_io("vit_jax_token")
    np.testing.assert_allclose(model(io["images"]), io["outputs"], atol=1e-4)


def test_stacked_arrays_are_read_once_and_released(tmp_path, monkeypatch):
    file = write_arrays(tmp_path / "x.npz", scanned(golden_weights("vit_jax_token")))
    read, calls = np.lib.format.read_array, []
    monkeypatch.setattr(np.lib.format, "read_array", lambda *a, **k: calls.append(1) or read(*a, **k))
    checkpoint = open_checkpoint(file)
    for _ in range(2):
        keras_vit.weights.load_weights(keras_vit.load(file), checkpoint)
    assert len(calls) == 4 * len(np.load(file).files)


def test_normalizations_with_leading_axes(tmp_path):
    golden = "vit_jax_hybrid_stem"
    arrays, io = golden_weights(golden), golden_io(golden)
    changes = {name: arrays[name][None, None, None] for name in ("gn_root/scale", "gn_root/bias")}
    model = keras_vit.load(golden_file(tmp_path, golden, **changes))
    np.testing.assert_allclose(model(io["images"]), io["outputs"], atol=1e-4)
