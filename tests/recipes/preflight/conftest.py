"""A small recipe, and a stub of the compiler."""

from contextlib import contextmanager

import pytest
from tensorflow.compiler.xla.service import hlo_pb2

from keras_vit.recipes.recipe import Architecture, Data, Optimizer, Run, Supervised


@pytest.fixture
def recipe():
    return Supervised(
        architecture=Architecture("Ti/8", depth=1, width=128, num_heads=2, mlp_dim=256),
        data=Data(dataset="cifar10", image_size=32, batch_size=64),
        optimizer=Optimizer("adamw", weight_decay=0.1, warmup_steps=10, ema_momentum=0.9),
        run=Run(precision="mixed_bfloat16"),
        total_steps=1_000,
    )


@pytest.fixture
def replace_compiler(tmp_path, monkeypatch):
    """Replaces the compiler by a function of (hlo, topology, replicas). Its results go to a separate cache."""
    monkeypatch.setenv("KERAS_HOME", str(tmp_path / "home"))

    def replace(compile_step):
        @contextmanager
        def compiler_process(*program):
            hlo, topology, replicas, _ = program
            yield lambda log: compile_step(hlo, topology, replicas)

        monkeypatch.setattr("keras_vit.recipes.preflight.compile_steps.compiler_process", compiler_process)

    return replace


@pytest.fixture
def stub_compiler(replace_compiler):
    """A step requires 1 GB plus 1 GB per image; above 16 GB the compiler is out of memory."""

    def compile_step(hlo, topology, replicas):
        module = hlo_pb2.HloModuleProto.FromString(hlo)
        shapes = [list(shape.dimensions) for shape in module.host_program_shape.parameters]
        required = 1e9 * (1 + next(shape[0] for shape in shapes if shape[1:] == [32, 32, 3]))
        result = {"seconds": 1.0, "peak_memory": 1e9, "schedule": "", "layers": []}
        if required > 16e9:
            return {**result, "error": "RESOURCE_EXHAUSTED: it exceeds available HBM"}
        memory = {"temp": required, "argument": 0.0, "output": 0.0, "alias": 0.0, "generated_code": 0.0}
        return {**result, "memory": memory, "flops": 1e12, "bytes": 1e9}

    replace_compiler(compile_step)
