"""Files that declare what they do not hold, and damaged HDF5 files: one sentence, before memory is allocated."""

import json
import struct
import time
import tracemalloc
import zipfile

import h5py
import numpy as np
import pytest
from goldens import golden_file

import keras_vit
from keras_vit.models.least_weights import least_weights
from keras_vit.weights import save


def header_of(shape, dtype=b"<f4"):
    """An .npz file, the header of one of whose arrays, of shape (1, 17, 48), says something else."""

    def write(folder):
        path = golden_file(folder, "vit_jax_token")
        with zipfile.ZipFile(path) as file:
            members = {name: file.read(name) for name in file.namelist()}
        name = "Transformer/posembed_input/pos_embedding.npy"
        content = members[name]
        length = struct.unpack("<H", content[8:10])[0]
        header = content[10 : 10 + length].replace(b"(1, 17, 48)", shape).replace(b"<f4", dtype).rstrip(b" \n")
        members[name] = content[:10] + header.ljust(length - 1) + b"\n" + content[10 + length :]
        with zipfile.ZipFile(path, "w") as file:
            for name, content in members.items():
                file.writestr(name, content)
        return path

    return write


def bomb(folder):
    """An .npz file of 64 KB that inflates to 64 MB."""
    with zipfile.ZipFile(folder / "x.npz", "w", zipfile.ZIP_DEFLATED) as file, file.open("a.npy", "w") as member:
        for _ in range(64):
            member.write(bytes(1 << 20))
    return folder / "x.npz"


def many_blocks(folder):
    """A file with a weight of block 999,999,999."""
    name = "Transformer/encoderblock_999999999/LayerNorm_0/bias"
    return golden_file(folder, "vit_jax_token", **{name: np.ones(48, "float32")})


def transformers_of(**config):
    def write(folder):
        path = golden_file(folder, "hf_vit")
        (folder / "config.json").write_text(json.dumps(config))
        return path

    return write


def deep_json(folder):
    path = golden_file(folder, "hf_vit")
    (folder / "config.json").write_text('{"a":' + "[" * 200_000 + "]" * 200_000 + "}")
    return path


def keras_of(**changes):
    """A .keras file whose configuration declares more than its weights."""

    def write(folder):
        shape = {"image_size": 16, "patch_size": 8, "depth": 1, "width": 12, "mlp_dim": 24, "num_heads": 3}
        save(keras_vit.VisionTransformer(**shape, num_classes=5), folder / "whole.keras")
        with zipfile.ZipFile(folder / "whole.keras") as old, zipfile.ZipFile(folder / "x.keras", "w") as new:
            for name in old.namelist():
                content = old.read(name)
                if name == "config.json" and changes:
                    config = json.loads(content)
                    config["config"] |= changes
                    content = json.dumps(config)
                elif name == "config.json":
                    content = '{"a":' + "[" * 200_000 + "]" * 200_000 + "}"
                new.writestr(name, content)
        return folder / "x.keras"

    return write


def virtual_zeros(folder):
    """An HDF5 file that declares 4 TB and holds none of it."""
    with h5py.File(folder / "x.weights.h5", "w") as file:
        file["encoder/blocks/a"] = np.ones(4)
        file.create_dataset("head/vars/0", (10**6, 10**6), "float32")
    return folder / "x.weights.h5"


HOSTILE = {
    "shape of 4 TB": (header_of(b"(1, 20833333333, 48)"), "declares an array of 3,999,999,999,936 bytes and has 3,264"),
    "zip bomb": (bomb, r"declares 67,108,864 bytes and has 6\d,\d{3}"),
    "a billion blocks": (many_blocks, "fewer than the .* that its names, shapes or config.json declare"),
    "image of 100,000 pixels": (transformers_of(image_size=160_000), "check image_size in config.json"),
    "image size as a list of text": (transformers_of(image_size=["a", "b"]), "config.json|image_size"),
    "heads as text": (transformers_of(image_size=64, num_attention_heads="3"), "config.json|num_heads"),
    "deep config.json": (deep_json, "config.json is not valid JSON: it is nested too deeply"),
    "deep .keras": (keras_of(), "x.keras cannot be read as a model of keras_vit: its config.json is nested too deeply"),
    "wide .keras": (keras_of(width=3_000_000), r"config.json declares at least \d.* weights, its model.weights.h5 has"),
    "wide hidden layer in .keras": (keras_of(representation_size=10**9), "declares at least .* weights"),
    "large patch in .keras": (
        keras_of(image_size=[20_000] * 2, patch_size=[20_000] * 2),
        "declares at least .* weights",
    ),
    "wide model in a model in .keras": (
        keras_of(vit={"config": {"depth": 1, "width": 10**6, "patch_size": 1}}),
        "declares",
    ),
    "arrays of no bytes each": (
        header_of(b"(3000000, 3000000)", b"|V0"),
        r"of shape \(3000000, 3000000\) and type \|V0",
    ),
    "negative sides": (header_of(b"(-6, -136, 1)"), r"declares an array of shape \(-6, -136, 1\)"),
    "large image in .keras": (keras_of(image_size=[800_000, 800_000]), "declares at least .* weights"),
    "arrays without bytes": (virtual_zeros, "head/vars/0 declares 4,000,000,000,000 bytes that are not in the file"),
}


@pytest.mark.parametrize("kind", HOSTILE)
def test_declared_sizes_are_held_against_the_file(kind, tmp_path):
    write, message = HOSTILE[kind]
    path = write(tmp_path)
    tracemalloc.start()
    start = time.monotonic()
    try:
        with pytest.raises(ValueError, match=message) as error:
            keras_vit.load(path, **({"num_heads": 3} if path.suffix == ".npz" else {}))
        assert tracemalloc.get_traced_memory()[1] < 64 << 20
    finally:
        tracemalloc.stop()
    assert "\n" not in str(error.value) and time.monotonic() - start < 5


@pytest.fixture(scope="module")
def h5_file(tmp_path_factory):
    model = keras_vit.VisionTransformer(image_size=16, patch_size=8, depth=1, width=12, mlp_dim=24, num_heads=3)
    path = tmp_path_factory.mktemp("h5") / "x.weights.h5"
    model.save_weights(path)
    return path


ARCHITECTURE = {"image_size": 16, "patch_size": 8, "depth": 1, "width": 12, "mlp_dim": 24, "num_heads": 3}


def test_arrays_of_an_hdf5_file_share_no_bytes(h5_file, tmp_path):
    """The address of one array becomes that of another: Keras would load the other's numbers."""
    content = bytearray(h5_file.read_bytes())
    with h5py.File(h5_file) as file:
        first, second = (file[f"encoder/norm/vars/{i}"].id.get_offset() for i in (0, 1))
    place = content.index(struct.pack("<Q", second))
    content[place : place + 8] = struct.pack("<Q", first)
    (path := tmp_path / "x.weights.h5").write_bytes(content)
    with pytest.raises(ValueError, match="x.weights.h5: .* is stored in the bytes of .*: the file is damaged"):
        keras_vit.load(path, **ARCHITECTURE)


def test_numbers_of_an_hdf5_file_are_finite(h5_file, tmp_path):
    content = bytearray(h5_file.read_bytes())
    with h5py.File(h5_file) as file:
        place = file["encoder/norm/vars/0"].id.get_offset()
    content[place : place + 4] = struct.pack("<f", float("nan"))
    (path := tmp_path / "x.weights.h5").write_bytes(content)
    with pytest.raises(ValueError, match="x.weights.h5: .* contains NaN or infinite values"):
        keras_vit.load(path, **ARCHITECTURE)


def test_numbers_of_a_keras_file_are_finite(tmp_path):
    model = keras_vit.VisionTransformer(**ARCHITECTURE)
    model.encoder.norm.gamma.assign([np.inf] * 12)
    model.save(tmp_path / "x.keras")
    with pytest.raises(ValueError, match="x.keras: .*/gamma contains NaN or infinite values.*training diverged"):
        keras_vit.load(tmp_path / "x.keras")


def test_least_weights_is_below_the_number_of_weights():
    models = {
        "vit": keras_vit.VisionTransformer(**ARCHITECTURE, register_tokens=2, num_classes=7),
        "gap": keras_vit.VisionTransformer(**ARCHITECTURE, pooling="gap", num_classes=0),
        "bit": keras_vit.BiT(stages=(1, 1), width_factor=1, num_classes=3),
        "axial": keras_vit.AxialResNet(image_size=64, stages=(1, 1), width_factor=0.5, num_heads=4, num_classes=3),
    }
    models["hidden"] = keras_vit.VisionTransformer(**ARCHITECTURE, representation_size=9, num_classes=3)
    models["hybrid"] = keras_vit.VisionTransformer(
        **{**ARCHITECTURE, "image_size": 32}, resnet_stages=(1,), num_classes=3
    )
    for name, model in models.items():
        assert 0 < least_weights(model.get_config()) <= model.count_params(), name
    assert least_weights(models["vit"].get_config()) > 0.3 * models["vit"].count_params()
