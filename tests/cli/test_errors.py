"""Errors of TensorFlow, HDF5, disks and memory, made by the faults themselves, become one sentence."""

import json
import socket
import sys
import tempfile

import h5py
import numpy as np
import pytest
import tensorflow as tf
from tensorflow.data.experimental import service

from keras_vit.atomic_write import naming_full_disk
from keras_vit.recipes import configs
from keras_vit_cli.errors import error_sentence
from keras_vit_cli.main import main


def truncated_records(folder):
    with tf.io.TFRecordWriter(str(folder / "x.tfrecord")) as writer:
        for _ in range(3):
            writer.write(b"x" * 100)
    (folder / "y.tfrecord").write_bytes((folder / "x.tfrecord").read_bytes()[:-50])
    return tf.function(lambda: tf.data.TFRecordDataset(str(folder / "y.tfrecord")).reduce(0, lambda n, _: n + 1))()


def failed_assertion(folder):
    def check(i):
        with tf.control_dependencies([tf.debugging.Assert(i < 2, ["Too many. So far:", i, "of", 3])]):
            return tf.identity(i)

    return list(tf.data.Dataset.range(3).map(check))


def full_disk(folder, opening=open):
    with opening("/dev/full", "w") as file:
        file.write("x")


def full_disk_of_beam(folder):
    try:
        full_disk(folder)
    except OSError as error:
        raise RuntimeError(f"{error} [while running 'Write']") from None


def damaged_hdf5(folder):
    with h5py.File(folder / "x.h5", "w") as file:
        file.create_dataset("a", data=np.arange(1000.0), chunks=(100,), compression="gzip")
    content = bytearray((folder / "x.h5").read_bytes())
    content[600:1200] = bytes(600)
    (folder / "x.h5").write_bytes(content)
    with h5py.File(folder / "x.h5") as file:
        return file["a"][:]


def no_memory_of_tensorflow(folder):
    raise tf.errors.ResourceExhaustedError(None, None, "OOM when allocating tensor with shape[9,9]\n\t [[{{node x}}]]")


def deep_nesting(folder):
    return json.loads("[" * 100_000)


FAULTS = [
    (truncated_records, "A file is damaged or truncated"),
    (failed_assertion, "Too many. So far: 2 of 3"),
    (full_disk, "No space is left on the disk"),
    (lambda folder: full_disk(folder, tf.io.gfile.GFile), "No space is left on the disk: /dev/full"),
    (full_disk_of_beam, "No space is left on the disk"),
    (damaged_hdf5, "An HDF5 file is damaged"),
    (lambda folder: np.empty(1 << 60, "uint8"), "--data.batch-size"),
    (no_memory_of_tensorflow, "shape[9,9]"),
    (deep_nesting, "nested too deeply"),
    (lambda folder: tf.io.read_file(str(folder / "none")), "none; No such file or directory"),
]


@pytest.mark.slow
def test_a_restarted_dispatcher_has_lost_its_state():
    with socket.create_server(("localhost", 0)) as free:
        port = free.getsockname()[1]
    config = service.DispatcherConfig(port=port)
    dispatcher = service.DispatchServer(config)
    worker = service.WorkerServer(service.WorkerConfig(f"localhost:{port}", heartbeat_interval_ms=100))
    numbers = tf.data.Dataset.range(10**9).apply(service.distribute("distributed_epoch", dispatcher.target))
    iterator = iter(numbers)
    next(iterator)
    dispatcher._stop()
    del dispatcher
    dispatcher = service.DispatchServer(config)
    with pytest.raises(tf.errors.NotFoundError) as raised:
        while True:
            next(iterator)
    assert error_sentence(raised.value).endswith("restart its dispatcher and workers, then resume.")
    del iterator, worker, dispatcher


@pytest.mark.parametrize("fault,words", FAULTS)
def test_faults_become_one_sentence(fault, words, tmp_path, monkeypatch, run_cli):
    monkeypatch.setattr(configs, "check_dataset", lambda recipe: fault(tmp_path))
    monkeypatch.chdir(tmp_path)
    with pytest.raises(Exception) as raised:
        fault(tmp_path)
    sentence = error_sentence(raised.value)
    assert len(sentence.splitlines()) == 1 and words in sentence and "{{" not in sentence and "[[" not in sentence
    status, _, errors = run_cli("train", "cifar10-scratch")
    assert status == 1 and errors.startswith("keras-vit: ") and errors.count("\n") == 1 and "Traceback" not in errors
    with pytest.raises(type(raised.value)):
        main(["train", "--debug", "cifar10-scratch"])


def test_a_full_disk_is_named(tmp_path, monkeypatch):
    monkeypatch.setenv("TMPDIR", "/full")
    for path, fixes in ((tmp_path, False), ("/full", True)):
        with pytest.raises(OSError) as raised, naming_full_disk("outer"), naming_full_disk(path):
            full_disk(tmp_path)
        sentence = error_sentence(raised.value)
        assert f": {path}." in sentence and ("TMPDIR" in sentence) == fixes


def raised_from(error, cause, folder=None):
    try:
        try:
            cause(folder)
        except Exception as reason:
            raise error from reason
    except Exception as outer:
        return outer


@pytest.mark.parametrize("backend", ["torch", "openvino", "jax", "banana"])
def test_a_missing_backend_of_keras_is_named_with_its_file(backend, tmp_path, monkeypatch):
    error = ModuleNotFoundError(f"No module named {backend!r}", name=backend)
    if backend == "banana":
        error = ValueError("Unable to import backend : banana")
    monkeypatch.setenv("KERAS_HOME", str(tmp_path))
    monkeypatch.setenv("KERAS_BACKEND", backend)
    assert f"{backend!r} in KERAS_BACKEND" in error_sentence(error)
    monkeypatch.delenv("KERAS_BACKEND")
    (tmp_path / "keras.json").write_text(json.dumps({"backend": backend}))
    sentence = error_sentence(error)
    assert f"{backend!r} in {tmp_path}/keras.json" in sentence and "export KERAS_BACKEND=tensorflow" in sentence


def test_causes_and_own_messages():
    assert "nested too deeply" in error_sentence(raised_from(RuntimeError("wrapped"), deep_nesting))
    assert error_sentence(raised_from(ValueError("Choose another folder."), full_disk)) == "Choose another folder."
    missing = ModuleNotFoundError("No module named 'tensorflow'", name="tensorflow")
    assert "pip install 'vit-for-keras[tensorflow]'" in error_sentence(missing)
    own = "x cannot be written: No space left on device. Check"
    for error in (ModuleNotFoundError("Install x."), FloatingPointError("It has diverged."), OSError(own)):
        assert error_sentence(error) == str(error)


def test_mistakes_in_the_code_have_a_traceback(monkeypatch, tmp_path):
    for mistake in (TypeError("x"), KeyError("x"), RuntimeError("x"), AssertionError()):
        assert error_sentence(mistake) is None
    monkeypatch.setattr(configs, "check_dataset", lambda recipe: 1 / 0)
    monkeypatch.chdir(tmp_path)
    with pytest.raises(ZeroDivisionError):
        main(["train", "cifar10-scratch"])
    monkeypatch.delitem(sys.modules, "tensorflow")
    assert error_sentence(ValueError("x")) == "x" and error_sentence(TypeError("x")) is None


class FullFile:
    """A file on a full disk: small writes fit into a buffer, flushing them fails, as with /dev/full."""

    def __init__(self, dir):
        self.file = open("/dev/full", "wb")

    def __enter__(self):
        return self.file

    def __exit__(self, *_):
        self.file.raw.close()


@pytest.mark.parametrize("name,problem", [("none", "does not exist"), ("", "No space left on device")])
@pytest.mark.parametrize("command", ["train", "doctor"])
def test_an_unusable_folder_of_temporary_files_stops_commands(command, name, problem, tmp_path, run_cli, monkeypatch):
    monkeypatch.setenv("TMPDIR", str(tmp_path / name))
    if not name:
        monkeypatch.setattr(tempfile, "TemporaryFile", FullFile)
    status, output, errors = run_cli(command)
    assert (status, output) == (1, "") and errors.startswith("keras-vit: ") and errors.count("\n") == 1
    assert str(tmp_path / name) in errors and problem in errors and "TMPDIR" in errors
    assert not list(tmp_path.iterdir())
