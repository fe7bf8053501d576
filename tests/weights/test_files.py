"""Messages for files that are damaged or of another format. Nothing is unpickled, and the model is unchanged."""

import pickle

import h5py
import ml_dtypes
import numpy as np
import pytest
from goldens import golden_file, golden_weights, write_arrays

import keras_vit
from keras_vit.weights import load_weights, open_checkpoint

POSITIONS = "Transformer/posembed_input/pos_embedding"
INDEX = "model.safetensors.index.json"
ATTENTION = "Transformer/encoderblock_0/MultiHeadDotProductAttention_0"


class RaisesWhenUnpickled:
    def __reduce__(self):
        return eval, ("1 / 0",)


def jax(**changes):
    return lambda folder: golden_file(folder, "vit_jax_token", **changes)


def torch(**changes):
    return lambda folder: golden_file(folder, "hf_vit", **changes)


def content(name, data):
    """A weights file of these bytes."""

    def write(folder):
        (folder / name).write_bytes(data)
        return folder / name

    return write


def damaged(write, change):
    """A file whose bytes are changed."""

    def write_damaged(folder):
        file = write(folder)
        file.write_bytes(change(file.read_bytes()))
        return file

    return write_damaged


def compressed(folder):
    np.savez_compressed(folder / "x.npz", **golden_weights("vit_jax_token"))
    return folder / "x.npz"


def flipped(data):
    middle = len(data) // 2
    return data[:middle] + bytes(255 - byte for byte in data[middle : middle + 64]) + data[middle + 64 :]


def beside(name, text):
    """A file of transformers with this description beside it."""

    def write(folder):
        (folder / name).write_text(text)
        return torch()(folder)

    return write


def index(text):
    return content(INDEX, text.encode())


def other_heads(folder):
    shapes = {f"{ATTENTION}/{x}/kernel": (48, 4, 12) for x in ("query", "key", "value")}
    arrays = golden_weights("vit_jax_token")
    return jax(**{name: arrays[name].reshape(shape) for name, shape in shapes.items()})(folder)


def folder_of(*files):
    def write(folder):
        for file in files:
            (folder / file).write_bytes(pickle.dumps(RaisesWhenUnpickled()))
        return folder

    return write


def pickled_shard(folder):
    return index('{"weight_map": {"a": "x.bin"}}')(folder_of("x.bin")(folder))


def no_first_block(folder):
    return jax(**{name: None for name in golden_weights("vit_jax_token") if "encoderblock_0" in name})(folder)


def bad_preset(folder):
    with h5py.File(folder / "model.weights.h5", "w") as file:
        file["layers/dense/vars/0"] = np.ones(2)
    (folder / "config.json").write_text("no")
    return folder


def full(value, dtype="float32"):
    return np.full((1, 1, 48), value, dtype)


BROKEN = {
    "no such file": (lambda folder: folder / "nowhere.npz", "nowhere.npz"),
    "empty folder": (folder_of(), "model.safetensors, .*model.weights.h5"),
    "interrupted run": (folder_of("recipe.json"), "not finished.*--run.resume"),
    "folder of PyTorch": (folder_of("pytorch_model.bin"), "Pickled"),
    "pickle of PyTorch": (content("x.bin", pickle.dumps(RaisesWhenUnpickled())), "Pickled"),
    "another ending": (content("x.onnx", b"x"), "Received: .*x.onnx"),
    "empty npz": (content("x.npz", b""), "incomplete download"),
    "text as npz": (content("x.npz", b"<!DOCTYPE html>"), "download it again"),
    "half an npz": (damaged(jax(), lambda data: data[: len(data) // 2]), "incomplete download"),
    "flipped bits": (damaged(jax(), flipped), "Bad CRC-32"),
    "flipped bits, compressed": (damaged(compressed, flipped), "incomplete download"),
    "pickled array": (jax(cls=np.array([RaisesWhenUnpickled()], dtype=object)), "cls is a pickled object"),
    "NaN": (jax(cls=full(np.nan)), "cls contains NaN"),
    "infinite, PyTorch": (torch(**{"vit.layernorm.bias": np.full(48, np.inf)}), "layernorm.bias contains NaN"),
    "integers": (jax(cls=full(1, "int64")), "cls has dtype int64"),
    "quantized": (torch(**{"vit.layernorm.bias": np.ones(48, "int8")}), "layernorm.bias has dtype I8"),
    "no first block": (no_first_block, "lacks 'Transformer/encoderblock_0/"),
    "no second norm": (jax(**{"Transformer/encoder_norm/bias": None}), "1 missing, 0 unused(.|\n)*encoder_norm/bias"),
    "another shape": (jax(**{"embedding/bias": np.ones(47)}), r"1 of a different(.|\n)*/bias +\(47,\) +\(48,\)"),
    "two position tables": (jax(**{POSITIONS: np.ones((2, 17, 48))}), r"1 of a(.|\n)*\(2, 17, 48\) +\(1, 17, 48\)"),
    "kernel of two axes": (jax(**{"embedding/kernel": np.ones((48, 48))}), r"\(48, 48\).*four axes"),
    "other heads": (other_heads, r"3 of a different shape(.|\n)*query/kernel +\(48, 4, 12\) +\(48, 3, 16\)"),
    "unknown": (lambda folder: write_arrays(folder / "x.npz", {"a": np.ones(2)}), "contains a, "),
    "no arrays": (lambda folder: write_arrays(folder / "x.npz", {}), "no arrays"),
    "text as safetensors": (content("x.safetensors", b"x" * 99), "incomplete download"),
    "half a safetensors": (damaged(torch(), lambda data: data[:-9]), "incomplete download"),
    "two names": (torch(**{"cls_classifier.bias": np.ones(10)}), "are the same weight"),
    "config is not JSON": (beside("config.json", "{'a': 1}"), "config.json is not valid JSON"),
    "config is a list": (beside("config.json", "[1]"), "config.json .*Received: a list"),
    "preprocessor": (beside("preprocessor_config.json", "{"), "preprocessor_config.json is not valid JSON"),
    "other activation": (beside("config.json", '{"hidden_act": "relu"}'), "hidden_act is 'relu'"),
    "no biases": (beside("config.json", '{"qkv_bias": false}'), "qkv_bias is false"),
    "missing shard": (index('{"weight_map": {"a": "b.safetensors"}}'), "missing: b.safetensors"),
    "shard elsewhere": (index('{"weight_map": {"a": "../../etc/passwd"}}'), "is not the index"),
    "shard is a pickle": (pickled_shard, "not .safetensors files: x.bin"),
    "shard is the index": (index(f'{{"weight_map": {{"a": "{INDEX}"}}}}'), f"not .safetensors files: {INDEX}"),
    "no index": (index("[]"), "is not the index"),
    "broken HDF5": (content("x.weights.h5", b"HDF"), "incomplete download"),
    "broken checkpoint": (content("ckpt-1.index", b"x" * 60), "TensorFlow checkpoint"),
    "invalid JSON of a preset": (bad_preset, "config.json is not valid JSON"),
}


@pytest.fixture(scope="module")
def model():
    shape = {"image_size": 64, "patch_size": 16, "depth": 2, "width": 48, "mlp_dim": 96, "num_heads": 3}
    return keras_vit.VisionTransformer(**shape, num_classes=10)


@pytest.mark.parametrize("kind", BROKEN)
def test_message_and_unchanged_model(kind, model, tmp_path):
    write, message = BROKEN[kind]
    file, before = write(tmp_path), model.get_weights()
    with pytest.raises((ValueError, FileNotFoundError), match=message) as error:
        load_weights(model, file)
    assert str(tmp_path) in str(error.value)
    for value, old in zip(model.get_weights(), before):
        np.testing.assert_array_equal(value, old)


@pytest.mark.parametrize("kind,ending", [("bfloat16", "npz"), ("bfloat16", "safetensors"), ("float16", "safetensors")])
def test_half_precision_is_read_exactly(kind, ending, tmp_path):
    golden = "vit_jax_token" if ending == "npz" else "hf_vit"
    dtype = ml_dtypes.bfloat16 if kind == "bfloat16" else kind
    exact = {name: x.astype(dtype) for name, x in golden_weights(golden).items()}
    file = write_arrays(tmp_path / f"x.{ending}", exact)
    if ending == "npz":
        assert np.load(file)["cls"].dtype == np.dtype("V2")  # as JAX's bfloat16 in .npz files
    tensors = open_checkpoint(file).tensors
    loaded = keras_vit.load(file, num_heads=3)
    name = "cls" if ending == "npz" else "vit.embeddings.cls_token"
    assert tensors.read(name.removeprefix("vit.")).dtype == np.float32
    np.testing.assert_array_equal(loaded.class_token.token, exact[name].astype("float32"))


def test_json_beside_an_npz_file_is_ignored(tmp_path):
    (tmp_path / "config.json").write_text("of something else")
    assert keras_vit.load(golden_file(tmp_path, "vit_jax_token")).num_classes == 10


@pytest.mark.parametrize("name", ["gs://bucket/ViT-B_16.npz", "gs://bucket/run/model.keras", "https://x.org/B_16.npz"])
def test_remote_files_must_be_copied_first(name):
    with pytest.raises(ValueError, match=f"gcloud storage cp {name}" if name.startswith("gs") else name):
        keras_vit.load(name)
