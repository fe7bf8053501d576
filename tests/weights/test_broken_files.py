"""What a user reads when a file is damaged or of another kind. Nothing is unpickled, and the model stays as it was."""

import pickle

import h5py
import numpy as np
import pytest
from goldens import golden_file, golden_weights, write_arrays

import keras_vit
from keras_vit.weights import load_weights

POSITIONS = "Transformer/posembed_input/pos_embedding"
ATTENTION = "Transformer/encoderblock_0/MultiHeadDotProductAttention_0"


class Bomb:
    """Unpickled, it would raise."""

    def __reduce__(self):
        return eval, ("1 / 0",)


def jax(**changes):
    return lambda folder: golden_file(folder, "vit_jax_token", **changes)


def torch(**changes):
    return lambda folder: golden_file(folder, "hf_vit", **changes)


def content(name, data):
    """A file of these bytes in place of weights."""

    def write(folder):
        (folder / name).write_bytes(data)
        return folder / name

    return write


def damaged(write, change):
    """A whole file whose bytes are changed."""

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
    """A whole file of transformers with this description beside it."""

    def write(folder):
        (folder / name).write_text(text)
        return torch()(folder)

    return write


def index(text):
    return content("model.safetensors.index.json", text.encode())


def other_heads(folder):
    shapes = {f"{ATTENTION}/{x}/kernel": (48, 4, 12) for x in ("query", "key", "value")}
    arrays = golden_weights("vit_jax_token")
    return jax(**{name: arrays[name].reshape(shape) for name, shape in shapes.items()})(folder)


def folder_of(*files):
    def write(folder):
        for file in files:
            (folder / file).write_bytes(pickle.dumps(Bomb()))
        return folder

    return write


def pickled_part(folder):
    return index('{"weight_map": {"a": "x.bin"}}')(folder_of("x.bin")(folder))


def no_first_block(folder):
    return jax(**{name: None for name in golden_weights("vit_jax_token") if "encoderblock_0" in name})(folder)


def full(value, dtype="float32"):
    return np.full((1, 1, 48), value, dtype)


BROKEN = {
    "no such file": (
        lambda folder: folder / "nowhere.npz",
        r"There is no weights file .*nowhere\.npz. Names are .*published_names",
    ),
    "empty folder": (folder_of(), r"has none of model\.safetensors, .*model\.weights\.h5"),
    "folder of PyTorch": (folder_of("pytorch_model.bin"), "has none of .*Pickled files can run any code"),
    "pickle of PyTorch": (content("x.bin", pickle.dumps(Bomb())), "Expected an .*Pickled files can run any code"),
    "another ending": (content("x.onnx", b"x"), r"Expected an \.npz or \.safetensors file. Received: .*x\.onnx"),
    "empty npz": (content("x.npz", b""), r"x\.npz cannot be read as an \.npz file.*broke off"),
    "text as npz": (content("x.npz", b"<!DOCTYPE html>"), r"cannot be read as an \.npz file.*fetch the file again"),
    "half an npz": (damaged(jax(), lambda data: data[: len(data) // 2]), r"cannot be read as an \.npz file.*broke off"),
    "flipped bits": (damaged(jax(), flipped), "cannot be read: Bad CRC-32.*broke off"),
    "flipped bits, compressed": (damaged(compressed, flipped), "cannot be read: .*broke off"),
    "pickled array": (jax(cls=np.array([Bomb()], dtype=object)), "cls is a pickled object, which is never opened"),
    "NaN": (jax(cls=full(np.nan)), "cls holds NaN or infinite values; the file is damaged"),
    "infinite": (jax(cls=full(-np.inf)), "cls holds NaN or infinite values"),
    "infinite, PyTorch": (torch(**{"vit.layernorm.bias": np.full(48, np.inf)}), r"layernorm\.bias holds NaN"),
    "integers": (jax(cls=full(1, "int64")), "cls has dtype int64; weights must be floating point"),
    "quantized": (torch(**{"vit.layernorm.bias": np.ones(48, "int8")}), r"layernorm\.bias has dtype I8"),
    "no first block": (no_first_block, "lacks 'Transformer/encoderblock_0/.*not whole"),
    "no second norm": (jax(**{"Transformer/encoder_norm/bias": None}), "1 missing, 0 unused(.|\n)*encoder_norm/bias"),
    "misshapen": (jax(**{"embedding/bias": np.ones(47)}), r"1 misshapen(.|\n)*/bias +\(47,\) +\(48,\)"),
    "two position tables": (
        jax(**{POSITIONS: np.ones((2, 17, 48))}),
        r"1 misshapen(.|\n)*\(2, 17, 48\) +\(1, 17, 48\)",
    ),
    "kernel of two axes": (jax(**{"embedding/kernel": np.ones((48, 48))}), r"has the shape \(48, 48\).*four axes"),
    "other heads": (other_heads, r"3 misshapen(.|\n)*query/kernel +\(48, 4, 12\) +\(48, 3, 16\)"),
    "unknown": (lambda folder: write_arrays(folder / "x.npz", {"a": np.ones(2)}), "not a Vision .*it holds a, "),
    "no arrays": (lambda folder: write_arrays(folder / "x.npz", {}), "not a Vision Transformer .*holds no arrays"),
    "text as safetensors": (content("x.safetensors", b"x" * 99), r"cannot be read as a \.safetensors file.*broke off"),
    "half a safetensors": (damaged(torch(), lambda data: data[:-9]), r"cannot be read as a \.safetensors.*broke off"),
    "two names": (torch(**{"cls_classifier.bias": np.ones(10)}), "holds both .* mean the same weight"),
    "config is not JSON": (beside("config.json", "{'a': 1}"), r"config\.json is not valid JSON"),
    "config is a list": (beside("config.json", "[1]"), r"config\.json must hold a JSON object. Received: a list"),
    "preprocessor": (beside("preprocessor_config.json", "{"), r"preprocessor_config\.json is not valid JSON"),
    "other activation": (
        beside("config.json", '{"hidden_act": "relu"}'),
        "hidden_act is 'relu' in config.json. Known: gelu",
    ),
    "no biases": (beside("config.json", '{"qkv_bias": false}'), "qkv_bias is false in config.json"),
    "part not there": (index('{"weight_map": {"a": "b.safetensors"}}'), r"not beside it: b\.safetensors"),
    "part elsewhere": (index('{"weight_map": {"a": "../../etc/passwd"}}'), r"is not the index of a \.safetensors file"),
    "part is a pickle": (index('{"weight_map": {"a": "../x.bin"}}'), r"is not the index of a \.safetensors file"),
    "part is a bare pickle": (pickled_part, r"names parts that are no \.safetensors files: x\.bin"),
    "part is the index": (
        index('{"weight_map": {"a": "model.safetensors.index.json"}}'),
        r"no \.safetensors files: model\.safetensors\.index\.json",
    ),
    "no index": (index("[]"), r"is not the index of a \.safetensors file in parts"),
    "broken HDF5": (content("x.weights.h5", b"HDF"), "cannot be read as an HDF5 file.*broke off"),
    "broken checkpoint": (content("ckpt-1.index", b"x" * 60), "cannot be read as a TensorFlow checkpoint"),
}


@pytest.fixture(scope="module")
def model():
    shape = {"image_size": 64, "patch_size": 16, "depth": 2, "width": 48, "mlp_dim": 96, "num_heads": 3}
    return keras_vit.VisionTransformer(**shape, num_classes=10)


@pytest.mark.parametrize("kind", BROKEN)
def test_the_message_says_what_is_wrong(kind, model, tmp_path):
    write, message = BROKEN[kind]
    file, before = write(tmp_path), model.get_weights()
    with pytest.raises((ValueError, FileNotFoundError), match=message) as error:
        load_weights(model, file)
    assert str(tmp_path) in str(error.value)
    for value, old in zip(model.get_weights(), before):
        np.testing.assert_array_equal(value, old)


def test_the_bomb_would_go_off():
    with pytest.raises(ZeroDivisionError):
        pickle.loads(pickle.dumps(Bomb()))


def test_json_beside_a_preset_is_read_with_the_same_care(tmp_path):
    with h5py.File(tmp_path / "model.weights.h5", "w") as file:
        file["layers/dense/vars/0"] = np.ones(2)
    (tmp_path / "config.json").write_text("no")
    with pytest.raises(ValueError, match=r"config\.json is not valid JSON"):
        keras_vit.load(tmp_path)
