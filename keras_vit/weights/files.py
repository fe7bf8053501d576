"""Arrays in files, read one at a time: .npz and .safetensors, for HDF5 see hdf5.py. Nothing is ever unpickled."""

import json
import math
import os
import re
import zipfile
from collections.abc import Callable, Collection, Iterable
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np

from keras_vit.weights.published import suggestion

DAMAGED_HINT = "The file may be an incomplete download: download it again."
PICKLED = (".bin", ".pt", ".pth", ".ckpt", ".pkl")
HDF5_HINT = (
    " A whole model in HDF5: keras.saving.load_model(path, custom_objects=vars(keras_vit)), then save it as .keras."
)
PICKLED_HINT = " Pickled files can run any code when opened, so they are never opened; save as .safetensors instead."
# Weights hardly compress. Files that declare more bytes than this many times their own size are hostile.
MAX_COMPRESSION = 100


@dataclass(frozen=True)
class Tensors:
    """The arrays of a file.

    Args:
        path: The file, for messages.
        shapes: Shape of each array, by name.
        read: Returns the array of a name as float32; raises ValueError unless all its values are finite.
    """

    path: Path
    shapes: dict[str, tuple[int, ...]]
    read: Callable[[str], np.ndarray]

    def __contains__(self, name):
        return name in self.shapes

    def renamed(self, rename: Callable[[str], str]) -> "Tensors":
        """The same arrays under other names; raises ValueError if two get the same name."""
        old: dict[str, str] = {}
        for name in self.shapes:
            other = old.setdefault(rename(name), name)
            if other != name:
                raise ValueError(f"{self.path} contains both {other} and {name}, which are the same weight.")
        shapes = {new: self.shapes[name] for new, name in old.items()}
        return Tensors(self.path, shapes, lambda name: self.read(old[name]))

    def without(self, prefix: str) -> "Tensors":
        """The arrays whose names do not start with the prefix."""
        return replace(self, shapes={name: shape for name, shape in self.shapes.items() if not name.startswith(prefix)})


def check_local(weights):
    """Raises a ValueError for an address, such as "gs://bucket/file"."""
    text = str(weights)
    if "://" in text:
        command = f": gcloud storage cp {text} ." if text.startswith("gs://") else " and pass its path."
        raise ValueError(f"Expected a local file. Received: {text}. Copy it to this machine first{command}")


def open_tensors(path) -> Tensors:
    """Opens an .npz or .safetensors file, or the index of a sharded .safetensors file; reads only names and shapes."""
    path = Path(path)
    if not path.is_file():
        raise FileNotFoundError(f"There is no weights file {path.absolute()}. {suggestion(str(path))}")
    if path.name.endswith(".safetensors.index.json"):
        return _open_shards(path)
    if path.suffix == ".safetensors":
        return _open_safetensors(path)
    if path.suffix == ".npz":
        return _open_npz(path)
    hint = PICKLED_HINT if path.suffix in PICKLED else HDF5_HINT if path.suffix in (".h5", ".hdf5") else ""
    raise ValueError(
        "Expected a .keras, .safetensors, .npz or .weights.h5 file, a TensorFlow checkpoint, or a folder with a model. "
        f"Received: {path}.{hint}"
    )


def _open_npz(path):
    try:
        with zipfile.ZipFile(path) as file:
            members = [name for name in file.namelist() if name.endswith(".npy")]
            _check_sizes(path, file, members)
            headers = {name.removesuffix(".npy"): _npy_header(file, name) for name in members}
    except Exception as error:  # zipfile, NumPy and Python's parser share no class of errors for damaged files
        raise ValueError(f"{path} cannot be read as an .npz file: {reason_of(error)}. {DAMAGED_HINT}") from error
    for name, (_, dtype) in headers.items():
        if dtype.hasobject:
            raise ValueError(f"{path}: {name} is a pickled object, which is never opened. Expected plain arrays.")

    def read(name):
        try:
            with zipfile.ZipFile(path) as file, file.open(f"{name}.npy") as stream:
                array = np.lib.format.read_array(stream, allow_pickle=False)
        except Exception as error:
            raise ValueError(f"{path}: {name} cannot be read: {reason_of(error)}. {DAMAGED_HINT}") from error
        return checked(path, name, array)

    return Tensors(path, {name: shape for name, (shape, _) in headers.items()}, read)


def _npy_header(file, member):
    with file.open(member) as stream:
        version = np.lib.format.read_magic(stream)
        read = np.lib.format.read_array_header_1_0 if version == (1, 0) else np.lib.format.read_array_header_2_0
        shape, _, dtype = read(stream)
        if dtype.hasobject:
            return shape, dtype
        if not dtype.itemsize or any(type(side) is not int or side < 0 for side in shape):
            raise ValueError(f"{member} declares an array of shape {shape} and type {dtype}")
        declared, num_bytes = math.prod(shape) * dtype.itemsize, file.getinfo(member).file_size - stream.tell()
        if declared != num_bytes:
            raise ValueError(f"{member} declares an array of {declared:,} bytes and has {num_bytes:,}")
        return shape, dtype


def _check_sizes(path, file, members):
    """Raises a ValueError if a zip file declares more bytes than it can have, before any of them is read."""
    declared, size = sum(file.getinfo(name).file_size for name in members), os.path.getsize(path)
    if declared > MAX_COMPRESSION * size:
        raise ValueError(f"it declares {declared:,} bytes and has {size:,}")
    twice = len(members) - len(set(members))
    if twice:
        raise ValueError(f"it has {twice} arrays twice")


def reason_of(error):
    """The first line of a parser's message; its class if there is none."""
    return str(error).strip().partition("\n")[0] or type(error).__name__


def _open_safetensors(path):
    from safetensors import SafetensorError, safe_open

    def opened():
        try:
            return safe_open(path, framework="numpy")
        except (SafetensorError, OSError) as error:  # it holds declared sizes against the file's
            raise ValueError(
                f"{path} cannot be read as a .safetensors file: {reason_of(error)}. {DAMAGED_HINT}"
            ) from error

    with opened() as file:
        slices = {name: file.get_slice(name) for name in file.keys()}
        shapes = {name: tuple(part.get_shape()) for name, part in slices.items()}
        types = {name: part.get_dtype() for name, part in slices.items()}

    def read(name):
        if types[name] not in ("F64", "F32", "F16", "BF16"):
            raise ValueError(f"{path}: {name} has dtype {types[name]}; weights must be floating point.")
        with opened() as file:
            return checked(path, name, file.get_tensor(name))

    return Tensors(path, shapes, read)


def _open_shards(path):
    try:
        names = read_json(path)["weight_map"]
        files = {name: path.with_name(file) for name, file in names.items()}
    except (ValueError, KeyError, AttributeError, TypeError) as error:
        raise ValueError(f"{path} is not the index of a sharded .safetensors file: {error!r}.") from error
    unsupported = sorted(file.name for file in set(files.values()) if file.suffix != ".safetensors")
    if unsupported:
        raise ValueError(f"{path} lists shards that are not .safetensors files: {', '.join(unsupported)}.")
    missing = sorted(file.name for file in set(files.values()) if not file.is_file())
    if missing:
        raise FileNotFoundError(
            f"{path} lists shards that are missing: {', '.join(missing)}. Download them to its folder."
        )
    shards = {file: open_tensors(file) for file in sorted(set(files.values()))}
    shapes = {name: shards[file].shapes[name] for name, file in files.items() if name in shards[file]}
    return Tensors(path, shapes, lambda name: shards[files[name]].read(name))


def read_json(file) -> dict:
    """A JSON object in a file; {} if there is no file. Raises ValueError if it holds anything else."""
    if not file.is_file():
        return {}
    try:
        content = json.loads(file.read_text(encoding="utf-8"))
    except RecursionError as error:
        raise ValueError(f"{file} is not valid JSON: it is nested too deeply. {DAMAGED_HINT}") from error
    except ValueError as error:
        raise ValueError(f"{file} is not valid JSON: {error}. {DAMAGED_HINT}") from error
    if not isinstance(content, dict):
        raise ValueError(f"{file} must hold a JSON object. Received: a {type(content).__name__}")
    return content


def checked(path, name, array):
    """The array as float32; raises ValueError if its dtype is not floating point or a value is NaN or infinite."""
    if array.dtype == np.dtype("V2"):  # JAX and Keras write bfloat16 as two bytes of no type
        array = (np.ascontiguousarray(array).view("uint16").astype("uint32") << 16).view("float32")
    if array.dtype.kind != "f" and array.dtype.name != "bfloat16":
        raise ValueError(f"{path}: {name} has dtype {array.dtype}; weights must be floating point.")
    array = array.astype("float32", copy=False)
    if not np.isfinite(array).all():
        raise ValueError(f"{path}: {name} contains NaN or infinite values: the file is damaged, or training diverged.")
    return array


# Written in the folder of a training: at its start, and at its end.
RECIPE, RUN, MODEL, METRICS = "recipe.json", "run.json", "model.keras", "metrics.json"
CONVERTED = "converted"  # folder of the images that TensorFlow does not read


def checkpoint_steps(names: Iterable[str]) -> list[int]:
    """Steps of the checkpoints among the names in a run's folder, newest first."""
    matches = [re.fullmatch(r"step-(\d+)\.index", name) for name in names]
    return sorted((int(match[1]) for match in matches if match), reverse=True)


def are_of_run(names: Collection[str]) -> bool:
    """Whether the names in a folder include checkpoints or results."""
    return METRICS in names or bool(checkpoint_steps(names))


def is_unfinished(run) -> bool:
    """Whether a local folder is that of a run without a model."""
    return (Path(run) / RECIPE).is_file() and not (Path(run) / MODEL).is_file()


def unfinished_message(run) -> str:
    """What to do about a run without a model."""
    return (
        f"The run in {run} has not finished: it has {RECIPE}, but no {MODEL}. Finish it with keras-vit train {run} "
        f"--run.folder {run} --run.resume"
    )
