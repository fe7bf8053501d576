"""The same weights as other versions and tools write them: training states of JAX, and half precision."""

import ml_dtypes
import numpy as np
import pytest
from goldens import golden_file, golden_io, golden_weights, write_arrays

import keras_vit
from keras_vit.models.bit import BiT
from keras_vit.weights import open_checkpoint
from keras_vit.weights.resnet_names import resnet_source_name
from keras_vit.weights.transfer import named_weights

BLOCKS = "Transformer/encoderblock_{}/"
PRE_LINEN = {
    "MultiHeadDotProductAttention_0": "MultiHeadDotProductAttention_1",
    "LayerNorm_1": "LayerNorm_2",
    "MlpBlock_0": "MlpBlock_3",
}


def prefixed(prefix, *others):
    """The arrays under a prefix, and copies under those of an optimizer, with its count of steps."""

    def change(arrays):
        moments = {f"{other}{name}": 7 * array for other in others for name, array in arrays.items()}
        steps = {f"{other}count": np.array(5) for other in others}
        return {f"{prefix}{name}": array for name, array in arrays.items()} | moments | steps

    return change


def pre_linen(arrays):
    return {"/".join(PRE_LINEN.get(part, part) for part in name.split("/")): x for name, x in arrays.items()}


def scanned(arrays):
    """The blocks' arrays stacked, as `nn.scan` does."""
    first = [name for name in arrays if BLOCKS.format(0) in name]
    stacks = {name: np.stack([arrays[name.replace("block_0", f"block_{i}")] for i in range(2)]) for name in first}
    rest = {name: x for name, x in arrays.items() if "encoderblock_" not in name}
    return rest | {name.replace("block_0", "block"): x for name, x in stacks.items()}


JAX = {
    "params": (prefixed("params/"), "params/Transformer/encoderblock_0/LayerNorm_0/bias"),
    "old optimizer": (prefixed("opt/target/", "opt/state/param_states/"), "opt/target/cls"),
    "target": (prefixed("target/"), "target/cls"),
    "training state": (prefixed("params/", "opt/0/mu/", "opt/0/nu/"), "opt/0/mu/count"),
    "pre-linen": (pre_linen, "Transformer/encoderblock_0/MlpBlock_3/Dense_0/kernel"),
    "scanned": (scanned, "Transformer/encoderblock/LayerNorm_0/bias"),
}


@pytest.mark.parametrize("kind", JAX)
def test_forms_of_jax(kind, tmp_path):
    change, name = JAX[kind]
    file = write_arrays(tmp_path / "x.npz", change(golden_weights("vit_jax_token")))
    assert name in np.load(file).files
    model, io = keras_vit.load(file), golden_io("vit_jax_token")
    np.testing.assert_allclose(model(io["images"]), io["outputs"], atol=1e-4)


def test_scanned_arrays_are_read_once_and_let_go(tmp_path, monkeypatch):
    file = write_arrays(tmp_path / "x.npz", scanned(golden_weights("vit_jax_token")))
    read, calls = np.lib.format.read_array, []
    monkeypatch.setattr(np.lib.format, "read_array", lambda *a, **k: calls.append(1) or read(*a, **k))
    checkpoint = open_checkpoint(file)
    for _ in range(2):
        keras_vit.weights.load_weights(keras_vit.load(file), checkpoint)
    assert len(calls) == 4 * len(np.load(file).files)


def test_files_of_big_transfer(tmp_path):
    model = BiT(stages=(1, 1), num_classes=4)
    random, arrays = np.random.default_rng(0), {}
    for i, (name, variable) in enumerate(named_weights(model).items()):
        variable.assign(variable + 0.1 * random.standard_normal(variable.shape))
        theirs = resnet_source_name(name, "bit_models").replace("a/standardized_conv2d/", f"a/standardized_conv2d_{i}/")
        array = variable.numpy()
        arrays[theirs] = array[None, None] if name == "head/kernel" else array
    file, images = write_arrays(tmp_path / "x.npz", arrays), golden_io("vit_jax_token")["images"]
    np.testing.assert_allclose(keras_vit.load(file)(images), model(images), atol=1e-5)
    new = keras_vit.load(file, num_classes=3)
    assert not np.any(new.head.kernel)
    np.testing.assert_allclose(new.features(images), model.features(images), atol=1e-5)


def test_normalisations_of_a_root_with_leading_axes(tmp_path):
    arrays = golden_weights("vit_jax_hybrid_stem")
    changes = {name: arrays[name][None, None, None] for name in ("gn_root/scale", "gn_root/bias")}
    model, io = (
        keras_vit.load(golden_file(tmp_path, "vit_jax_hybrid_stem", **changes)),
        golden_io("vit_jax_hybrid_stem"),
    )
    np.testing.assert_allclose(model(io["images"]), io["outputs"], atol=1e-4)


@pytest.mark.parametrize("kind,ending", [("bfloat16", "npz"), ("bfloat16", "safetensors"), ("float16", "safetensors")])
def test_half_precision_is_read_as_it_is(kind, ending, tmp_path):
    golden = "vit_jax_token" if ending == "npz" else "hf_vit"
    exact = {
        name: x.astype(ml_dtypes.bfloat16 if kind == "bfloat16" else kind) for name, x in golden_weights(golden).items()
    }
    file = write_arrays(tmp_path / f"x.{ending}", exact)
    if ending == "npz":
        assert np.load(file)["cls"].dtype == np.dtype("V2")  # as JAX's bfloat16 ends up in .npz files
    tensors = open_checkpoint(file).tensors
    loaded = keras_vit.load(file, num_heads=3)
    name = "cls" if ending == "npz" else "vit.embeddings.cls_token"
    assert tensors.read(name.removeprefix("vit.")).dtype == np.float32
    np.testing.assert_array_equal(loaded.class_token.token, exact[name].astype("float32"))


def test_a_description_beside_an_npz_is_not_its_own(tmp_path):
    (tmp_path / "config.json").write_text("of something else")
    assert keras_vit.load(golden_file(tmp_path, "vit_jax_token")).num_classes == 10


@pytest.mark.parametrize("name", ["gs://bucket/ViT-B_16.npz", "gs://bucket/run/model.keras", "https://x.org/B_16.npz"])
def test_an_address_is_told_to_be_copied(name):
    remedy = f"gcloud storage cp {name} " if name.startswith("gs") else "then give the file's path"
    with pytest.raises(ValueError, match=f"Received: {name}. Copy it here first: {remedy}"):
        keras_vit.load(name)
