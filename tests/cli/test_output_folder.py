import errno
import os
from pathlib import Path

import pytest

from keras_vit.atomic_write import OLD
from keras_vit_cli.output_folder import check_replaceable, new_folder

MARK = "report.html"


def listing(path):
    return sorted(str(file.relative_to(path)) for file in path.rglob("*"))


@pytest.fixture
def previous(tmp_path):
    """tmp_path/run with a mark."""
    with new_folder(tmp_path / "run", MARK) as folder:
        (folder / MARK).write_text("first")
    return tmp_path / "run"


def test_a_link_to_a_folder_remains(tmp_path):
    (tmp_path / "target").mkdir()
    (tmp_path / "link").symlink_to(tmp_path / "target")
    with new_folder(tmp_path / "link") as folder:
        (folder / "a").write_text("x")
    assert (tmp_path / "link").is_symlink() and (tmp_path / "target" / "a").read_text() == "x"


def test_folder_appears_when_the_block_ends(tmp_path):
    with new_folder(tmp_path / "deep" / "run") as folder:
        (folder / MARK).write_text("1")
        assert not (tmp_path / "deep" / "run").exists()
    assert listing(tmp_path) == ["deep", "deep/run", f"deep/run/{MARK}"]


def test_second_run_replaces_all_of_the_first(previous, tmp_path):
    (previous / "first").touch()
    with new_folder(previous, MARK) as folder:
        (folder / MARK).write_text("second")
        (folder / "second").touch()
    assert listing(tmp_path) == ["run", f"run/{MARK}", "run/second"]


def test_a_full_disk_is_named_as_the_user_does(tmp_path):
    for name in (None, "model.tflite"):
        with pytest.raises(OSError) as raised, new_folder(tmp_path / "run") as folder:
            raise OSError(errno.ENOSPC, "No space left on device", name and str(folder / name))
        assert raised.value.filename == str(tmp_path / "run") and not listing(tmp_path)


@pytest.mark.parametrize("error", [KeyboardInterrupt, ValueError])
def test_interrupted_run_leaves_the_previous_one(previous, tmp_path, error):
    with pytest.raises(error), new_folder(previous, MARK) as folder:
        (folder / "part").write_text("x")
        raise error
    assert listing(tmp_path) == ["run", f"run/{MARK}"] and (previous / MARK).read_text() == "first"


def test_failed_replacement_restores_the_previous_folder(previous, tmp_path, monkeypatch):
    rename, calls = os.rename, []

    def fails_at_the_second(source, target):
        calls.append(target)
        if len(calls) == 2:
            raise OSError("No space left on device")
        rename(source, target)

    monkeypatch.setattr(os, "rename", fails_at_the_second)
    with pytest.raises(ValueError, match="No space left on device") as raised, new_folder(previous, MARK) as folder:
        (folder / "new").touch()
    kept = str(raised.value).rpartition("/")[2].rstrip(".")
    assert listing(previous) == [MARK] and listing(tmp_path / kept) == ["new"]


def test_what_a_process_replaced_when_it_was_killed_is_back(previous, tmp_path):
    left = tmp_path / ".run.keras-vit-12345678"
    left.mkdir()
    os.rename(previous, left / OLD)
    with pytest.raises(KeyboardInterrupt), new_folder(previous, MARK):
        raise KeyboardInterrupt
    assert listing(tmp_path) == ["run", f"run/{MARK}"] and (previous / MARK).read_text() == "first"


def test_a_folder_that_others_wrote_meanwhile_is_not_replaced(tmp_path):
    with pytest.raises(ValueError, match="something else") as raised, new_folder(tmp_path / "run", MARK) as folder:
        (folder / MARK).write_text("new")
        (tmp_path / "run").mkdir()
        (tmp_path / "run" / "thesis.txt").write_text("x")
    kept = str(raised.value).rpartition("/")[2].rstrip(".")
    assert listing(tmp_path / "run") == ["thesis.txt"] and listing(tmp_path / kept) == [MARK]
    assert sorted(os.listdir(tmp_path)) == ["run", kept] and not kept.startswith(".")


def test_the_current_folder_is_not_replaced(tmp_path, monkeypatch):
    (tmp_path / "a" / "b").mkdir(parents=True)
    monkeypatch.chdir(tmp_path / "a" / "b")
    for path in (Path(), Path("..")):
        with pytest.raises(ValueError, match="current folder.* --output"):
            check_replaceable(path)
        with pytest.raises(ValueError, match="current folder.* --output"), new_folder(path):
            pass
    with new_folder(Path("n" * 255)):
        pass
    assert Path("n" * 255).is_dir()


def test_folders_with_other_contents_are_not_replaced(previous, tmp_path):
    (tmp_path / "metrics.json").write_text("x")
    for path, mark in ((tmp_path, None), (tmp_path, MARK), (tmp_path / "metrics.json", MARK), (previous, None)):
        with pytest.raises(ValueError, match="--output"):
            check_replaceable(path, mark)
    with pytest.raises(ValueError, match="not empty"), new_folder(previous):
        pass
    with pytest.raises(ValueError, match="--output"), new_folder(tmp_path / "metrics.json" / "deep" / "run"):
        pass
    assert listing(tmp_path) == ["metrics.json", "run", f"run/{MARK}"]
    (tmp_path / "new").mkdir()
    check_replaceable(tmp_path / "new")
