"""Parts of a model that stay in float."""

import re

import pytest

from keras_vit.export import write_tflite
from keras_vit.export.tflite.graph import read_graph
from keras_vit.export.tflite.parts import all_but, operations_of, part_names


def test_names(toy):
    names = ["block_0/attention", "block_0/mlp", "head", "all else"]
    assert part_names(toy(depth=1)) == names
    assert part_names(toy(depth=1, num_classes=0)) == [*names[:2], "all else"]


@pytest.mark.parametrize("part", ["block_1/mlp", "head", "all else"])
def test_each_operation_is_of_a_part_or_of_the_others(toy, part):
    model = toy(depth=2)
    names = ["block_0/mlp/hidden", "block_1/mlp/out", "block_1/attention/MatMul", "head/MatMul", "sub"]
    (own,), (others,) = operations_of(model, [part]), all_but(model, part)
    belongs = [bool(re.match(own, name)) for name in names]
    assert belongs == [not re.match(others, name) for name in names]
    assert sum(belongs) == 1


def test_unknown_part(toy):
    with pytest.raises(ValueError, match="^Parts of .*: block_0/attention, .*, all else. Received: block_9/mlp$"):
        operations_of(toy(depth=1), ["head", "block_9/mlp"])
    with pytest.raises(ValueError, match="Pass keep_float=\\['head'\\]$"):
        operations_of(toy(depth=1), "head")


@pytest.mark.slow
def test_kept_parts_are_in_float(classifier, images, tmp_path):
    (path,) = write_tflite(classifier, tmp_path, ["int8"], images, keep_float=["block_0/attention"]).values()
    in_float = {one.outputs[0].name for one in read_graph(path) if one.outputs[0].dtype == "float32"}
    assert any("block_0/attention" in name for name in in_float)
    assert not [name for name in in_float if "mlp" in name and "attention" not in name and "norm" not in name]
