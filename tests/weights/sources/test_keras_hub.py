"""Files of KerasHub, and others made of them: one file for all weights, other types, and models in memory."""

import json
import shutil
from types import SimpleNamespace

import h5py
import ml_dtypes
import numpy as np
import pytest
from goldens import DATA, golden_io

import keras_vit
from keras_vit.weights import open_checkpoint
from keras_vit.weights.hdf5 import h5_arrays
from keras_vit.weights.sources.keras_hub import KERAS_HUB, read_files

CONVERTER = {"scale": [1 / 51] * 3, "offset": -2.5, "crop_to_aspect_ratio": False, "interpolation": "bicubic"}
IO, HEAD = golden_io("keras_hub_vit"), "layers/dense/vars/0"
MEMORY = {  # of names in files
    "layers/vi_t_backbone/layers/vi_t_": "vit_",
    "encoder_layers/vi_t_encoder_block_1": "transformer_block_2",
    "encoder_layers/vi_t_encoder_block": "transformer_block_1",
    "layer_norm": "ln",
    "output_dense": "attention_output",
    "_dense": "",
    "layers/dense_1": "predictions",
    "layers/dense": "pre_logits",
}


@pytest.mark.parametrize("name", ["keras_hub_vit", "keras_hub_deit"])
def test_logits_equal_those_of_keras_hub(name, tmp_path):
    """Presets and logits by KerasHub's own code: tools/model_goldens.py."""
    io = golden_io(name)
    file = write_h5(tmp_path / "x.weights.h5", arrays_of(name))
    for path in (DATA / name, file):
        model = keras_vit.load(path, num_heads=3)
        assert model.image_size == (32, 32) and model.num_classes == 5
        assert (model.pre_logits is not None) == (name == "keras_hub_vit")
        np.testing.assert_allclose(model(io["images"]), io["logits"], atol=1e-5)
    assert open_checkpoint(file).source is KERAS_HUB and model.config.gelu == "erf"


def arrays_of(name) -> dict:
    """Path to array, as in the one file of `model.save_weights`."""
    arrays, backbone = {}, "layers/vi_t_backbone/" if name == "keras_hub_vit" else "layers/dei_t_backbone/"
    for kind, prefix in (("model", backbone), ("task", "")):
        with h5py.File(DATA / name / f"{kind}.weights.h5") as file:
            arrays |= {prefix + path: array[()] for path, array in h5_arrays(file).items()}
    return arrays


def write_h5(path, arrays):
    with h5py.File(path, "w") as file:
        for name, array in arrays.items():
            file[name] = array
            layer = "pre_logits" if name.startswith("layers/dense/") and "layers/dense_1/vars/0" in arrays else ""
            file[name].parent.attrs["name"] = layer
    return path


def test_preset_folder(tmp_path):
    for file in (DATA / "keras_hub_vit").iterdir():
        shutil.copy(file, tmp_path)
    config = json.loads((tmp_path / "config.json").read_text())
    config["config"] |= {"image_shape": [64, 16, 3], "layer_norm_epsilon": 1e-5}
    (tmp_path / "config.json").write_text(json.dumps(config))
    (tmp_path / "image_converter.json").write_text(json.dumps({"config": CONVERTER}))
    loaded = keras_vit.load(tmp_path)
    assert loaded.config.epsilon == 1e-5 and loaded.image_size == (64, 16)
    np.testing.assert_allclose(loaded.preprocess(np.full((16, 8, 3), 204, "uint8")), 204 / 51 - 2.5, atol=1e-6)
    assert (loaded.preprocessing.resize, loaded.preprocessing.interpolation) == ("squash", "bicubic")
    (tmp_path / "task.json").write_text(json.dumps({"config": {"pooling": "gap"}}))
    with pytest.raises(ValueError, match="pooling='gap'"):
        keras_vit.load(tmp_path)


def memory_path(path):
    layer, _, index = path.partition("/vars/")
    for old, new in MEMORY.items():
        layer = layer.replace(old, new)
    leaves = ("gamma", "beta") if "/ln" in layer else ("kernel", "bias")
    leaves = {"position_embedding": ("embeddings",), "vit_patching_and_embedding": ("class_token",)}.get(
        layer.rpartition("/")[2], leaves
    )
    return f"{layer}/{leaves[int(index)]}"


def test_model_in_memory():
    class Weight(SimpleNamespace):
        def __array__(self, dtype=None, copy=None):
            return self.value

    arrays = {memory_path(path): x for path, x in arrays_of("keras_hub_vit").items() if "optimizer" not in path}
    assert "vit_encoder/transformer_block_2/mha/query/kernel" in arrays
    weights = [Weight(path=path, name=path, shape=x.shape, value=x) for path, x in arrays.items()]
    peer = SimpleNamespace(name="vit", weights=weights, pooling="token", preprocessor=None)
    peer.backbone = SimpleNamespace(get_config=lambda: {"image_shape": (32, 32, 3), "layer_norm_epsilon": 1e-6})
    loaded = keras_vit.load(peer)
    assert loaded.config.epsilon == 1e-6 and "mean" not in open_checkpoint(peer).preprocessing
    np.testing.assert_allclose(loaded(IO["images"]), IO["logits"], atol=1e-5)
    peer.preprocessor = SimpleNamespace(image_converter=SimpleNamespace(get_config=lambda: CONVERTER))
    found = open_checkpoint(peer).preprocessing
    np.testing.assert_allclose((found["mean"], found["std"]), ([0.5] * 3, [0.2] * 3))
    assert (found["resize"], found["interpolation"]) == ("squash", "bicubic")


def test_other_models_raise(toy, tmp_path):
    (tmp_path / "config.json").write_text('{"class_name": "ViTImageClassifier"}')
    with pytest.raises(FileNotFoundError, match=r"model\.weights\.h5"):
        read_files(tmp_path)
    (model := toy(depth=1)).save_weights(tmp_path / "ours.weights.h5")
    with pytest.raises(ValueError, match="not a Vision Transformer of KerasHub"):
        open_checkpoint(tmp_path / "ours.weights.h5")
    for file, message in (("recipe.json", "--run.resume"), ("model.keras", r"model\.keras")):
        (tmp_path / file).touch()
        with pytest.raises(ValueError, match=f"is a checkpoint of a training.*{message}"):
            open_checkpoint(tmp_path / "ours.weights.h5")
    with h5py.File(tmp_path / "two.weights.h5", "w") as file:
        for layer in ("dense", "dense_1"):
            file[f"layers/{layer}/vars/0"], file[f"layers/{layer}/vars/1"] = np.zeros((2, 2)), np.zeros(2)
    with pytest.raises(ValueError, match="both layers/dense/vars/0 and layers/dense_1/vars/0"):
        keras_vit.load(tmp_path / "two.weights.h5")
    with pytest.raises(ValueError, match="not a Vision Transformer of KerasHub or tf-models-official"):
        keras_vit.load(model)


def test_half_precision_is_exact_and_integers_raise(tmp_path):
    arrays = arrays_of("keras_hub_vit")
    half = {name: x.astype(ml_dtypes.bfloat16) for name, x in arrays.items()}
    expected = keras_vit.load(write_h5(tmp_path / "a.weights.h5", {n: x.astype("float32") for n, x in half.items()}))
    found = keras_vit.load(write_h5(tmp_path / "b.weights.h5", {n: x.view("V2") for n, x in half.items()}))
    np.testing.assert_array_equal(found(IO["images"]), expected(IO["images"]))
    with pytest.raises(ValueError, match="dtype int32"):
        keras_vit.load(write_h5(tmp_path / "c.weights.h5", arrays | {HEAD: np.ones((24, 7), "int32")}))


@pytest.mark.parametrize("kind", ["external", "virtual"])
def test_external_storage_is_never_opened(kind, tmp_path):
    arrays = arrays_of("keras_hub_vit")
    file, head = write_h5(tmp_path / "x.weights.h5", arrays), arrays[HEAD]
    (tmp_path / "secret").write_bytes(head.tobytes())
    with h5py.File(tmp_path / "secret.h5", "w") as other:
        other["a"] = head
    with h5py.File(file, "a") as opened:
        del opened[HEAD]
        if kind == "external":
            size = [(str(tmp_path / "secret"), 0, head.nbytes)]
            opened.create_dataset(HEAD, head.shape, "float32", external=size)
        else:
            layout = h5py.VirtualLayout(head.shape, "float32")
            layout[...] = h5py.VirtualSource(str(tmp_path / "secret.h5"), "a", head.shape)
            opened.create_virtual_dataset(HEAD, layout)
    with pytest.raises(ValueError, match=f"{HEAD} is stored in another file"):
        keras_vit.load(file)
