"""Arrays in HDF5 files, none of which is read from outside its file."""

import math
import os
from collections.abc import Iterator
from contextlib import contextmanager

from keras_vit.weights.files import DAMAGED_HINT, MAX_COMPRESSION, reason_of


@contextmanager
def open_h5(path) -> Iterator:
    """Opens an HDF5 file whose arrays are all in the file itself, each in a place of its own."""
    import h5py

    try:
        with h5py.File(path, "r") as file:
            _check_storage(path, file)
            yield file
    except Exception as error:  # h5py has no class of errors for damaged files: KeyError, TypeError, RuntimeError, ...
        if isinstance(error, ValueError) and str(path) in str(error):  # already says what is wrong
            raise
        raise ValueError(f"{path} cannot be read as an HDF5 file: {reason_of(error)}. {DAMAGED_HINT}") from error


def h5_arrays(file) -> dict:
    """The arrays of an open file, by name."""
    import h5py

    arrays: dict = {}
    file.visititems(lambda name, item: arrays.update({name: item}) if isinstance(item, h5py.Dataset) else None)
    return arrays


def _check_storage(path, file):
    """Raises a ValueError for arrays outside the file, larger than the file, or on the same bytes."""
    size, extents, declared = os.path.getsize(path), [], 0.0
    for name, array in h5_arrays(file).items():
        if array.external or array.is_virtual:
            raise ValueError(
                f"{path}: {name} is stored in another file (external or virtual HDF5 storage), which is never opened. "
                "Save the weights again with Keras, in one file."
            )
        num_bytes = math.prod(array.shape) * array.dtype.itemsize
        compressed = array.id.get_create_plist().get_nfilters() > 0
        declared += num_bytes / MAX_COMPRESSION if compressed else num_bytes
        start = array.id.get_offset()
        if start is not None:
            extents.append((start, start + num_bytes, name))
        elif not compressed and array.id.get_storage_size() < num_bytes:
            raise ValueError(f"{path}: {name} declares {num_bytes:,} bytes that are not in the file. {DAMAGED_HINT}")
    if declared > size:
        raise ValueError(
            f"{path} has {size:,} bytes, too few for the arrays that it declares ({declared:,.0f}). {DAMAGED_HINT}"
        )
    end, before = 0, ""
    for start, stop, name in sorted(extents):
        if start < end or stop > size:
            where = f"the bytes of {before}" if start < end else "bytes after its end"
            raise ValueError(f"{path}: {name} is stored in {where}: the file is damaged. {DAMAGED_HINT}")
        end, before = stop, name
