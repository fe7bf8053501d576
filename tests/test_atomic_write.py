import os
import subprocess
import sys

import pytest
import tensorflow as tf

from keras_vit import atomic_write
from keras_vit.atomic_write import literal_folder, new_files, write_file

# Writes a file, and keeps it under its temporary name until its standard input ends.
WRITER = """
import pathlib, runpy, sys
with runpy.run_path(sys.argv[1])["new_files"](pathlib.Path(sys.argv[2])) as (file,):
    file.write_text("of a process")
    print(file.parent.name, flush=True)
    sys.stdin.read()
"""


def listing(path):
    return sorted(str(file.relative_to(path)) for file in path.rglob("*"))


def test_write_file(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    write_file(tmp_path / "a.txt", "größer")
    assert (tmp_path / "a.txt").read_bytes() == "größer".encode()
    write_file("a.txt", b"new")
    assert (tmp_path / "a.txt").read_bytes() == b"new" and listing(tmp_path) == ["a.txt"]
    (tmp_path / "usual").touch()
    assert (tmp_path / "a.txt").stat().st_mode == (tmp_path / "usual").stat().st_mode
    with pytest.raises(FileNotFoundError):
        write_file(tmp_path / "nowhere" / "a.txt", "")


def test_links_and_pipes_remain(tmp_path):
    (tmp_path / "link").symlink_to(tmp_path / "target")  # which does not exist yet
    for content in (b"one", b"two"):
        write_file(tmp_path / "link", content)
        assert (tmp_path / "link").is_symlink() and (tmp_path / "target").read_bytes() == content
    os.mkfifo(tmp_path / "pipe")
    reader = os.open(tmp_path / "pipe", os.O_RDONLY | os.O_NONBLOCK)
    write_file(tmp_path / "pipe", "größer")
    assert os.read(reader, 100).decode() == "größer" and (tmp_path / "pipe").is_fifo()
    os.close(reader)
    assert listing(tmp_path) == ["link", "pipe", "target"]


def test_names_as_long_as_the_disk_allows(tmp_path):
    for name in ("n" * 255, "é" * 127):
        write_file(tmp_path / name, "x")
        assert listing(tmp_path) == [name]
        (tmp_path / name).unlink()


def test_files_appear_together(tmp_path):
    paths = [tmp_path / "a.txt", tmp_path / "b.npz"]
    with new_files(*paths) as files:
        for file in files:
            file.write_text("x")
        assert not any(path.exists() for path in paths)
        assert [file.name for file in files] == ["a.txt", "b.npz"]  # some writers add an extension
    assert listing(tmp_path) == ["a.txt", "b.npz"]


@pytest.mark.parametrize("error", [KeyboardInterrupt(), OSError("No space left on device")])
def test_errors_leave_the_previous_file(tmp_path, error):
    write_file(tmp_path / "a.txt", "old")
    with pytest.raises(type(error)), new_files(tmp_path / "a.txt") as (file,):
        file.write_text("part")
        raise error
    assert listing(tmp_path) == ["a.txt"] and (tmp_path / "a.txt").read_text() == "old"


def test_what_a_killed_process_leaves_is_removed_and_not_what_a_living_one_writes(tmp_path):
    command = [sys.executable, "-S", "-c", WRITER, atomic_write.__file__, str(tmp_path / "a")]
    pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "text": True}
    with subprocess.Popen(command, **pipes) as killed, subprocess.Popen(command, **pipes) as living:
        left, used = killed.stdout.readline().strip(), living.stdout.readline().strip()
        killed.kill()
        killed.wait()
        others = [".a-12345678", ".a.keras-vit-", ".a b.keras-vit-12345678", ".a.keras-vit-12345678.txt"]
        for name in others:
            (tmp_path / name).mkdir()
        assert sorted(os.listdir(tmp_path)) == sorted([left, used, *others])
        write_file(tmp_path / "a", "of this one")
        assert sorted(os.listdir(tmp_path)) == sorted(["a", used, *others])
        living.communicate("")
    assert sorted(os.listdir(tmp_path)) == sorted(["a", *others]) and (tmp_path / "a").read_text() == "of a process"


@pytest.mark.parametrize("name", ["a", "a [1]", "a*", "a\\b"])
def test_variables_in_a_folder_with_the_name_of_a_pattern(tmp_path, name):
    """The values are those of this folder, not of others that the name matches as a pattern."""
    for folder, value in ((tmp_path / "a 1", 1.0), (tmp_path / "ax", 2.0), (tmp_path / name, 3.0)):
        folder.mkdir()
        variable = tf.Variable(value)
        with literal_folder(folder) as literal:
            tf.train.Checkpoint(x=variable).write(f"{literal}/step")
            tf.saved_model.save(tf.train.Checkpoint(x=variable), literal)
    assert listing(tmp_path / name) == listing(tmp_path / "ax")
    read = tf.Variable(0.0)
    with literal_folder(tmp_path / name) as literal:
        tf.train.Checkpoint(x=read).read(f"{literal}/step").assert_consumed()
        loaded = tf.saved_model.load(literal)
    assert read.numpy() == loaded.x.numpy() == 3.0
