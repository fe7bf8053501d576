import os

import pytest
import tensorflow as tf

from keras_vit.recipes.remote_files import write_file


def test_failed_write_keeps_the_previous_content(tmp_path, monkeypatch):
    file = tmp_path / "metrics.json"
    write_file(file, "old")
    write_file(str(file), b"new")
    assert file.read_bytes() == b"new"

    def full(*arguments, **_):
        raise tf.errors.ResourceExhaustedError(None, None, "No space left on device")

    monkeypatch.setattr(tf.io.gfile, "rename", full)
    with pytest.raises(OSError, match="metrics.json cannot be written: No space left on device. Check"):
        write_file(file, "newer")
    assert file.read_bytes() == b"new" and os.listdir(tmp_path) == ["metrics.json"]


def test_missing_folder_raises_os_error(tmp_path):
    with pytest.raises(OSError, match="cannot be written"):
        write_file(tmp_path / "nowhere" / "a.txt", "")


def test_name_without_folder_is_in_the_working_directory(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    write_file("a.txt", "")
    assert os.listdir(tmp_path) == ["a.txt"]
