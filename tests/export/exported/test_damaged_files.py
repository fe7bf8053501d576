"""Damaged exported files: the error names the file, whatever its reader raises."""

import shutil

import numpy as np
import pytest
from ai_edge_litert import schema_py_generated as schema

from keras_vit.export.exported.opening import open_exported
from keras_vit.export.tflite.flatbuffer import unpack_model


def truncate(file, length):
    file.write_bytes(file.read_bytes()[:length])


def without_weights(file):
    """Zeros in place of the offset of a shape: LiteRT opens the file and fails when it is run."""
    content = bytearray(file.read_bytes())
    model = schema.Model.GetRootAs(content)
    weight = next(
        i for i, tensor in enumerate(unpack_model(bytes(content)).subgraphs[0].tensors) if len(tensor.shape) == 2
    )
    tensor = model.Subgraphs(0).Tensors(weight)
    shape = tensor._tab.Vector(tensor._tab.Offset(4))
    content[shape : shape + 8] = np.array([1, 1], "<i4").tobytes()
    file.write_bytes(content)


DAMAGES = [
    ("float32", without_weights),
    ("onnx", lambda file: truncate(file, 5_000)),
    ("saved_model", lambda folder: truncate(folder / "variables" / "variables.data-00000-of-00001", 9_000)),
    ("saved_model", lambda folder: truncate(folder / "variables" / "variables.index", 100)),
    ("saved_model", lambda folder: truncate(folder / "saved_model.pb", 1_000)),
    ("saved_model", lambda folder: (folder / "assets.extra" / "preprocessing.json").write_bytes(bytes(50))),
    ("saved_model", lambda folder: (folder / "assets" / "labels.txt").write_text("one\ntwo\n")),
]


@pytest.mark.parametrize("name,damage", DAMAGES)
def test_the_error_names_the_file(name, damage, artifacts, images, tmp_path):
    path = tmp_path / artifacts[name].name
    (shutil.copytree if path.suffix == "" else shutil.copy)(artifacts[name], path)
    assert len(open_exported(path).classify(images[:1].astype("uint8"))) == 1
    damage(path)
    with pytest.raises((ValueError, OSError)) as raised:
        open_exported(path).classify(images[:1].astype("uint8"))
    assert str(path) in str(raised.value)
