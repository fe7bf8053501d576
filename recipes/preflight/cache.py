"""Answers of the compiler, kept on disk by a hash of all that they depend on."""

import hashlib
import json
from pathlib import Path

from tensorflow.compiler.xla.service import hlo_pb2

from keras_vit.cache_dir import cache_dir
from keras_vit.recipes.preflight import compiler
from keras_vit.recipes.write_file import write_file


def cache_folder() -> Path:
    """keras_vit/preflight in KERAS_HOME, by default in ~/.keras."""
    return cache_dir() / "preflight"


def key_of(program: bytes, *circumstances) -> str:
    """A hash of a program, a HloModuleProto, without names, of topology, versions and so on, and of `compiler.py`.

    Names and numbers count the models and functions that were made before. Layers that an answer names may therefore
    be those of another model with an equal program.
    """
    circumstances = [Path(compiler.__file__).read_text(), *circumstances]
    module = hlo_pb2.HloModuleProto.FromString(program)
    for computation in module.computations:
        computation.name = ""
        for instruction in computation.instructions:
            instruction.name = ""
            instruction.ClearField("metadata")
    module.name = module.entry_computation_name = ""
    module.ClearField("id")
    return hashlib.sha256(module.SerializeToString(deterministic=True) + json.dumps(circumstances).encode()).hexdigest()


def read(key: str) -> dict | None:
    """What was kept under a key, or None."""
    try:
        return json.loads((cache_folder() / f"{key}.json").read_text())
    except (OSError, json.JSONDecodeError):
        return None


def write(key: str, answer: dict):
    """Keeps an answer, aside and then renamed."""
    cache_folder().mkdir(parents=True, exist_ok=True)
    write_file(cache_folder() / f"{key}.json", json.dumps(answer))
