"""Files of KerasHub, and files and models created here under its names from a model of keras_vit."""

import json
from types import SimpleNamespace

import h5py
import ml_dtypes
import numpy as np
import pytest
from goldens import DATA, golden_io
from peers import attention_arrays

import keras_vit
from keras_vit.weights import open_checkpoint
from keras_vit.weights.sources.keras_hub import KERAS_HUB, read_files

CONVERTER = {"scale": [1 / 51] * 3, "offset": -2.5, "crop_to_aspect_ratio": False, "interpolation": "bicubic"}
NAMES = {"layers/dense": "pre_logits", "layers/dense_1": "predictions"}


@pytest.mark.parametrize("name", ["keras_hub_vit", "keras_hub_deit"])
def test_logits_equal_those_of_keras_hub(name):
    """Presets and logits by KerasHub's own code: benchmarks/goldens.py."""
    model, io = keras_vit.load(DATA / name), golden_io(name)
    assert model.image_size == (32, 32) and model.num_classes == 5
    assert (model.pre_logits is not None) == (name == "keras_hub_vit")
    np.testing.assert_allclose(model(io["images"]), io["logits"], atol=1e-5)


def hub_groups(model, kind) -> dict:
    """Path of a group in a file of KerasHub to its arrays, in the order of their numbers."""
    start = f"layers/{kind}_backbone/"
    patches = [x.numpy() for x in model.patch_embedding.projection.weights]
    token, table = model.class_token.token.numpy(), model.positions.table.numpy()
    if kind == "vi_t":
        embedding = f"{start}layers/vi_t_patching_and_embedding"
        groups = {embedding: [token], f"{embedding}/position_embedding": [table[0]]}
    else:
        embedding = f"{start}layers/dei_t_embeddings"
        groups = {embedding: [token, model.register_tokens.tokens.numpy(), table]}
    groups[f"{embedding}/patch_embedding"] = patches
    groups[f"{start}layers/{kind}_encoder/layer_norm"] = model.encoder.norm.weights
    hidden, out = ("mlp/dense_1", "mlp/dense_2") if kind == "vi_t" else ("mlp/dense", "output_layer/dense")
    for i, block in enumerate(model.encoder.blocks):
        path = f"{start}layers/{kind}_encoder/encoder_layers/{kind}_encoder_block{f'_{i}' if i else ''}"
        groups |= {f"{path}/layer_norm_1": block.norm_attention.weights, f"{path}/layer_norm_2": block.norm_mlp.weights}
        groups |= {f"{path}/{hidden}": block.mlp.hidden.weights, f"{path}/{out}": block.mlp.out.weights}
        groups |= {f"{path}/mha/{name}_dense": arrays for name, arrays in attention_arrays(block).items()}
    groups["layers/dense_1" if model.pre_logits else "layers/dense"] = model.head.weights
    if model.pre_logits:
        groups["layers/dense"] = model.pre_logits.weights
    return groups


def write_h5(path, groups, names=None):
    with h5py.File(path, "w") as file:
        for group, arrays in groups.items():
            for i, array in enumerate(arrays):
                file[f"{group}/vars/{i}"] = np.asarray(array)
            file[f"{group}/vars"].attrs["name"] = (names or {}).get(group, group.rpartition("/")[2])
        file["optimizer/vars/0"] = np.int32(3)
    return path


@pytest.mark.parametrize("kind,changes", [("vi_t", {"representation_size": 7}), ("dei_t", {"register_tokens": 1})])
def test_weights_file(kind, changes, trained_toy, images, tmp_path):
    model = trained_toy(gelu="erf", depth=3, **changes)
    file = write_h5(tmp_path / "x.weights.h5", hub_groups(model, kind), NAMES if kind == "vi_t" else None)
    loaded = keras_vit.load(file)
    assert open_checkpoint(file).source is KERAS_HUB and loaded.config.gelu == "erf"
    np.testing.assert_allclose(loaded(images), model(images), atol=1e-6)


def test_preset_folder(trained_toy, images, tmp_path):
    model = trained_toy(gelu="erf", image_size=(16, 8), epsilon=1e-5)
    groups = hub_groups(model, "vi_t")
    body = {name.removeprefix("layers/vi_t_backbone/"): x for name, x in groups.items() if "backbone" in name}
    write_h5(tmp_path / "model.weights.h5", body)
    write_h5(tmp_path / "task.weights.h5", {"layers/dense": groups["layers/dense"]})
    config = {"image_shape": [16, 8, 3], "layer_norm_epsilon": 1e-5}
    for name, content in {"config": config, "task": {"pooling": "token"}, "image_converter": CONVERTER}.items():
        (tmp_path / f"{name}.json").write_text(json.dumps({"config": content}))
    loaded = keras_vit.load(tmp_path)
    assert loaded.config.epsilon == 1e-5 and loaded.image_size == (16, 8)
    np.testing.assert_allclose(loaded(images[:, :, :8]), model(images[:, :, :8]), atol=1e-6)
    image = np.full((16, 8, 3), 204, "uint8")
    np.testing.assert_allclose(loaded.preprocess(image), 204 / 51 - 2.5, atol=1e-6)
    assert (loaded.preprocessing.resize, loaded.preprocessing.interpolation) == ("squash", "bicubic")
    (tmp_path / "task.json").write_text(json.dumps({"config": {"pooling": "gap"}}))
    with pytest.raises(ValueError, match="pooling='gap' also averages the class token"):
        keras_vit.load(tmp_path)


def hub_variables(model):
    """Weights of a model of KerasHub, each with its path."""
    for group, arrays in hub_groups(model, "vi_t").items():
        path = group.replace("layers/vi_t_backbone/layers/vi_t_", "vit_").replace("layer_norm_", "ln_")
        path = path.replace("layer_norm", "ln").replace("output_dense", "attention_output").replace("_dense", "")
        path = path.replace("layers/dense", "predictions")
        path = path.replace("encoder_layers/vi_t_encoder_block_1", "transformer_block_2")
        path = path.replace("encoder_layers/vi_t_encoder_block/", "transformer_block_1/")
        leaves = ("gamma", "beta") if "/ln" in path else ("kernel", "bias")
        leaves = ("embeddings",) if "position" in path else ("class_token",) if len(arrays) == 1 else leaves
        for leaf, array in zip(leaves, arrays):
            yield f"{path}/{leaf}", np.asarray(array)


def test_model_in_memory(trained_toy, images):
    class Weight(SimpleNamespace):
        def __array__(self, dtype=None, copy=None):
            return self.value

    model = trained_toy(gelu="erf", epsilon=1e-5)
    weights = [Weight(path=path, name=path, shape=x.shape, value=x) for path, x in hub_variables(model)]
    assert "vit_encoder/transformer_block_2/mha/query/kernel" in {weight.path for weight in weights}
    peer = SimpleNamespace(name="vit", weights=weights, pooling="token", preprocessor=None)
    peer.backbone = SimpleNamespace(get_config=lambda: {"image_shape": (16, 16, 3), "layer_norm_epsilon": 1e-5})
    loaded = keras_vit.load(peer)
    assert loaded.config.epsilon == 1e-5 and "mean" not in open_checkpoint(peer).preprocessing
    np.testing.assert_allclose(loaded(images), model(images), atol=1e-6)
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
    names = {"layers/dense": [np.zeros((2, 2)), np.zeros(2)], "layers/dense_1": [np.zeros((2, 2)), np.zeros(2)]}
    with pytest.raises(ValueError, match="both layers/dense/vars/0 and layers/dense_1/vars/0"):
        keras_vit.load(write_h5(tmp_path / "two.weights.h5", names))
    with pytest.raises(ValueError, match="not a Vision Transformer of KerasHub or tf-models-official"):
        keras_vit.load(model)


def test_half_precision_is_exact_and_integers_raise(trained_toy, images, tmp_path):
    groups = hub_groups(trained_toy(gelu="erf"), "vi_t")
    half = {name: [np.asarray(x).astype(ml_dtypes.bfloat16) for x in arrays] for name, arrays in groups.items()}
    exact = {name: [x.astype("float32") for x in arrays] for name, arrays in half.items()}
    file = write_h5(tmp_path / "half.weights.h5", {name: [x.view("V2") for x in y] for name, y in half.items()})
    expected = keras_vit.load(write_h5(tmp_path / "whole.weights.h5", exact))
    np.testing.assert_array_equal(keras_vit.load(file)(images), expected(images))
    groups["layers/dense"] = [np.ones((12, 5), "int32"), np.zeros(5, "float32")]
    with pytest.raises(ValueError, match="dtype int32"):
        keras_vit.load(write_h5(tmp_path / "ints.weights.h5", groups))


@pytest.mark.parametrize("kind", ["external", "virtual"])
def test_external_storage_is_never_opened(kind, trained_toy, tmp_path):
    groups = hub_groups(trained_toy(), "vi_t")
    head = np.asarray(groups["layers/dense"][0], "float32")
    file = write_h5(tmp_path / "x.weights.h5", groups)
    (tmp_path / "secret").write_bytes(head.tobytes())
    with h5py.File(tmp_path / "secret.h5", "w") as other:
        other["a"] = head
    with h5py.File(file, "a") as opened:
        del opened["layers/dense/vars/0"]
        if kind == "external":
            size = [(str(tmp_path / "secret"), 0, head.nbytes)]
            opened.create_dataset("layers/dense/vars/0", head.shape, "float32", external=size)
        else:
            layout = h5py.VirtualLayout(head.shape, "float32")
            layout[...] = h5py.VirtualSource(str(tmp_path / "secret.h5"), "a", head.shape)
            opened.create_virtual_dataset("layers/dense/vars/0", layout)
    with pytest.raises(ValueError, match="layers/dense/vars/0 is stored in another file"):
        keras_vit.load(file)
