import os

from tensorflow.compiler.xla.service import hlo_pb2

from keras_vit.recipes.preflight import compile_steps


def program(name, constant):
    """One constant instruction; its names contain a counter."""
    module = hlo_pb2.HloModuleProto(name=name, entry_computation_name=f"main_{name}")
    instruction = module.computations.add(name=f"main_{name}").instructions.add(name=f"c_{name}", opcode="constant")
    instruction.metadata.op_name = f"vit_{name}/head"
    instruction.literal.s32s.append(constant)
    return module.SerializeToString()


def test_key_depends_on_program_topology_and_versions(tmp_path, monkeypatch):
    monkeypatch.setenv("KERAS_HOME", str(tmp_path))
    versions, stored = {"jax": "0.10.2"}, tmp_path / "keras_vit" / "preflight"
    key = compile_steps.cache_key(program("step_1", 3), "v5e:1", versions)
    assert compile_steps.read_result(key) is None
    compile_steps.write_result(key, {"flops": 1.0})
    assert compile_steps.read_result(key) == {"flops": 1.0} and os.listdir(stored) == [f"{key}.json"]
    assert compile_steps.cache_key(program("step_2", 3), "v5e:1", versions) == key
    for constant, topology, other in ((4, "v5e:1", versions), (3, "v3:1", versions), (3, "v5e:1", {})):
        assert compile_steps.read_result(compile_steps.cache_key(program("step_1", constant), topology, other)) is None
    (stored / f"{key}.json").write_text("{")  # damaged
    assert compile_steps.read_result(key) is None


def test_a_cache_that_cannot_be_written_is_no_error(tmp_path, monkeypatch, caplog):
    (tmp_path / "file").write_text("")
    monkeypatch.setenv("KERAS_HOME", str(tmp_path / "file"))
    compile_steps.write_result("key", {})
    assert compile_steps.read_result("key") is None and caplog.records
