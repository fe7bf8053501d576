"""Compiler results on disk, keyed by a hash of everything that determines them."""

import hashlib
import json
import logging
from pathlib import Path

from tensorflow.compiler.xla.service import hlo_pb2

from keras_vit.cache_dir import cache_dir
from keras_vit.recipes.preflight import compiler
from keras_vit.recipes.remote_files import write_file


def cache_folder() -> Path:
    """keras_vit/preflight in KERAS_HOME, which defaults to ~/.keras."""
    return cache_dir() / "preflight"


def cache_key(hlo: bytes, *conditions) -> str:
    """Hash of a program without its names, of the conditions (topology, versions, ...), and of `compiler.py`.

    Names contain counters of the models and functions created before, so they are removed. Layers named in a stored
    result may therefore be those of another model with an equal program.

    Args:
        hlo: A serialized HloModuleProto.
        conditions: JSON-serializable values.
    """
    module = hlo_pb2.HloModuleProto.FromString(hlo)
    for computation in module.computations:
        computation.name = ""
        for instruction in computation.instructions:
            instruction.name = ""
            instruction.ClearField("metadata")
    module.name = module.entry_computation_name = ""
    module.ClearField("id")
    rest = json.dumps([Path(compiler.__file__).read_text(), *conditions])
    return hashlib.sha256(module.SerializeToString(deterministic=True) + rest.encode()).hexdigest()


def read(key: str) -> dict | None:
    """The result stored under a key, or None if there is none or it is damaged."""
    try:
        return json.loads((cache_folder() / f"{key}.json").read_text())
    except (OSError, json.JSONDecodeError):
        return None


def write(key: str, result: dict):
    """Stores a result atomically; logs why it cannot, if the cache is read-only or full."""
    try:
        cache_folder().mkdir(parents=True, exist_ok=True)
        write_file(cache_folder() / f"{key}.json", json.dumps(result))
    except OSError as error:
        logging.getLogger(__name__).warning("The program is compiled again next time: %s", error)
