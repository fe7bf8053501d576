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
from keras_vit.models.load_checks import least_weights
from keras_vit.weights import save

ARCHITECTURE = {"image_size": 16, "patch_size": 8, "depth": 1, "width": 12, "mlp_dim": 24, "num_heads": 3}
DEEP = '{"a":' + "[" * 200_000 + "]" * 200_000 + "}"


def members_of(path):
    with zipfile.ZipFile(path) as file:
        return {name: file.read(name) for name in file.namelist()}


def write_members(path, members):
    with zipfile.ZipFile(path, "w") as file:
        for name, content in members.items():
            file.writestr(name, content)
    return path


def header_of(shape, dtype=b"<f4"):
    """An .npz file, the header of one of whose arrays, of shape (1, 17, 48), says something else."""

    def write(folder):
        members = members_of(path := golden_file(folder, "vit_jax_token"))
        name = "Transformer/posembed_input/pos_embedding.npy"
        content = members[name]
        length = struct.unpack("<H", content[8:10])[0]
        header = content[10 : 10 + length].replace(b"(1, 17, 48)", shape).replace(b"<f4", dtype).rstrip(b" \n")
        members[name] = content[:10] + header.ljust(length - 1) + b"\n" + content[10 + length :]
        return write_members(path, members)

    return write


def bomb(folder):
    """An .npz file of 64 KB that inflates to 64 MB."""
    with zipfile.ZipFile(folder / "x.npz", "w", zipfile.ZIP_DEFLATED) as file, file.open("a.npy", "w") as member:
        for _ in range(64):
            member.write(bytes(1 << 20))
    return folder / "x.npz"


def many_blocks(folder):
    name = "Transformer/encoderblock_999999999/LayerNorm_0/bias"
    return golden_file(folder, "vit_jax_token", **{name: np.ones(48, "float32")})


def transformers_of(config):
    def write(folder):
        (folder / "config.json").write_text(config if isinstance(config, str) else json.dumps(config))
        return golden_file(folder, "hf_vit")

    return write


def keras_of(**changes):
    """A .keras file whose configuration declares more than its weights."""

    def write(folder):
        save(keras_vit.VisionTransformer(**ARCHITECTURE, num_classes=5), folder / "whole.keras")
        members = members_of(folder / "whole.keras")
        config = json.loads(members["config.json"])
        config["config"] |= changes
        return write_members(folder / "x.keras", members | {"config.json": json.dumps(config) if changes else DEEP})

    return write


def virtual_zeros(folder):
    """An HDF5 file that declares 4 TB and holds none of it."""
    with h5py.File(folder / "x.weights.h5", "w") as file:
        file["encoder/blocks/a"] = np.ones(4)
        file.create_dataset("head/vars/0", (10**6, 10**6), "float32")
    return folder / "x.weights.h5"


NESTED = {"config": {"depth": 1, "width": 10**6, "patch_size": 1}}
HOSTILE = {
    "shape of 4 TB": (header_of(b"(1, 20833333333, 48)"), "3,999,999,999,936 bytes and has 3,264"),
    "zip bomb": (bomb, r"67,108,864 bytes and has 6\d,\d{3}"),
    "a billion blocks": (many_blocks, "fewer than"),
    "image of 100,000 pixels": (transformers_of({"image_size": 160_000}), "image_size"),
    "image size as a list of text": (transformers_of({"image_size": ["a", "b"]}), "config.json|image_size"),
    "heads as text": (transformers_of({"image_size": 64, "num_attention_heads": "3"}), "config.json|num_heads"),
    "deep config.json": (transformers_of(DEEP), "nested too deeply"),
    "deep .keras": (keras_of(), "nested too deeply"),
    "wide .keras": (keras_of(width=3_000_000), r"config.json declares at least \d.* weights, its model.weights.h5 has"),
    "wide hidden layer in .keras": (keras_of(representation_size=10**9), "at least .* weights"),
    "large patch in .keras": (keras_of(image_size=[20_000] * 2, patch_size=[20_000] * 2), "at least .* weights"),
    "wide model in a model in .keras": (keras_of(vit=NESTED), "declares"),
    "large image in .keras": (keras_of(image_size=[800_000, 800_000]), "at least .* weights"),
    "arrays of no bytes each": (header_of(b"(3000000, 3000000)", b"|V0"), r"\(3000000, 3000000\) and type \|V0"),
    "negative sides": (header_of(b"(-6, -136, 1)"), r"\(-6, -136, 1\)"),
    "arrays without bytes": (virtual_zeros, "head/vars/0 declares 4,000,000,000,000 bytes"),
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


@pytest.mark.parametrize("damage", ["shared bytes", "NaN"])
def test_damaged_hdf5_files(damage, tmp_path):
    """The address of one array becomes that of another, whose numbers Keras would load; or numbers are not finite."""
    path = tmp_path / "x.weights.h5"
    keras_vit.VisionTransformer(**ARCHITECTURE).save_weights(path)
    content = bytearray(path.read_bytes())
    with h5py.File(path) as file:
        first, second = (file[f"encoder/norm/vars/{i}"].id.get_offset() for i in (0, 1))
    if damage == "NaN":
        content[first : first + 4] = struct.pack("<f", float("nan"))
    else:
        place = content.index(struct.pack("<Q", second))
        content[place : place + 8] = struct.pack("<Q", first)
    path.write_bytes(content)
    with pytest.raises(ValueError, match="contains NaN" if damage == "NaN" else "is stored in the bytes of"):
        keras_vit.load(path, **ARCHITECTURE)


def test_numbers_of_a_keras_file_are_finite(tmp_path):
    model = keras_vit.VisionTransformer(**ARCHITECTURE)
    model.encoder.norm.gamma.assign([np.inf] * 12)
    model.save(tmp_path / "x.keras")
    with pytest.raises(ValueError, match="/gamma contains NaN or infinite values"):
        keras_vit.load(tmp_path / "x.keras")


def test_least_weights_is_below_the_number_of_weights():
    vit = keras_vit.VisionTransformer(**ARCHITECTURE, register_tokens=2, num_classes=7)
    models = [
        vit,
        keras_vit.VisionTransformer(**ARCHITECTURE, pooling="gap", num_classes=0),
        keras_vit.BiT(stages=(1, 1), width_factor=1, num_classes=3),
        keras_vit.AxialResNet(image_size=64, stages=(1, 1), width_factor=0.5, num_heads=4, num_classes=3),
        keras_vit.VisionTransformer(**ARCHITECTURE, representation_size=9, num_classes=3),
        keras_vit.VisionTransformer(**{**ARCHITECTURE, "image_size": 32}, resnet_stages=(1,), num_classes=3),
    ]
    for model in models:
        assert 0 < least_weights(model.get_config()) <= model.count_params(), model.get_config()
    assert least_weights(vit.get_config()) > 0.3 * vit.count_params()
