import os

from tensorflow.compiler.xla.service import hlo_pb2

from keras_vit.recipes.preflight import cache


def program(name, constant):
    """One instruction, a number, with names that count."""
    module = hlo_pb2.HloModuleProto(name=name, entry_computation_name=f"main_{name}")
    instruction = module.computations.add(name=f"main_{name}").instructions.add(name=f"c_{name}", opcode="constant")
    instruction.metadata.op_name = f"vit_{name}/head"
    instruction.literal.s32s.append(constant)
    return module.SerializeToString()


def test_answers_are_found_by_all_that_they_depend_on(tmp_path, monkeypatch):
    monkeypatch.setenv("KERAS_HOME", str(tmp_path))
    place = ("v5e:1", {"jax": "0.10.2"})
    key = cache.key_of(program("step_1", 3), *place)
    assert cache.read(key) is None
    cache.write(key, {"flops": 1.0})
    assert cache.read(key) == {"flops": 1.0}
    assert os.listdir(tmp_path / "keras_vit" / "preflight") == [f"{key}.json"]
    assert cache.key_of(program("step_2", 3), *place) == key
    others = [
        (program("step_1", 4), *place),
        (program("step_1", 3), "v3:1", place[1]),
        (program("step_1", 3), "v5e:1", {}),
    ]
    assert all(cache.read(cache.key_of(*other)) is None for other in others)


def test_a_damaged_answer_is_none(tmp_path, monkeypatch):
    monkeypatch.setenv("KERAS_HOME", str(tmp_path))
    cache.write("key", {})
    (tmp_path / "keras_vit" / "preflight" / "key.json").write_text("{")
    assert cache.read("key") is None
