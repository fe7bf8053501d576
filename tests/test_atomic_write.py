import os

import pytest

from keras_vit.atomic_write import check_replaceable, new_files, new_folder, write_file

MARK = "report.html"


def listing(path):
    return sorted(str(file.relative_to(path)) for file in path.rglob("*"))


def test_write_file(tmp_path):
    write_file(tmp_path / "a.txt", "größer")
    assert (tmp_path / "a.txt").read_bytes() == "größer".encode()
    write_file(str(tmp_path / "a.txt"), b"new")
    assert (tmp_path / "a.txt").read_bytes() == b"new" and listing(tmp_path) == ["a.txt"]


def test_write_file_in_the_working_folder(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    write_file("a.txt", "")
    assert listing(tmp_path) == ["a.txt"]


def test_files_have_the_usual_permissions(tmp_path):
    (tmp_path / "usual").touch()
    write_file(tmp_path / "new", "")
    assert (tmp_path / "new").stat().st_mode == (tmp_path / "usual").stat().st_mode


def test_files_appear_together(tmp_path):
    paths = [tmp_path / "a.txt", tmp_path / "b.npz"]
    with new_files(*paths) as files:
        for file in files:
            file.write_text("x")
        assert not any(path.exists() for path in paths)
        assert [file.name for file in files] == ["a.txt", "b.npz"]  # some writers add an extension
    assert listing(tmp_path) == ["a.txt", "b.npz"]


@pytest.mark.parametrize("error", [KeyboardInterrupt, OSError("No space left on device")])
def test_errors_leave_the_previous_file(tmp_path, error):
    write_file(tmp_path / "a.txt", "old")
    with pytest.raises(error if isinstance(error, type) else OSError), new_files(tmp_path / "a.txt") as (file,):
        file.write_text("part")
        raise error
    assert listing(tmp_path) == ["a.txt"] and (tmp_path / "a.txt").read_text() == "old"


def test_missing_folder(tmp_path):
    with pytest.raises(FileNotFoundError):
        write_file(tmp_path / "nowhere" / "a.txt", "")


def test_folder_appears_when_the_block_ends(tmp_path):
    with new_folder(tmp_path / "deep" / "run") as folder:
        (folder / MARK).write_text("1")
        assert not (tmp_path / "deep" / "run").exists()
    assert listing(tmp_path) == ["deep", "deep/run", f"deep/run/{MARK}"]


def test_second_run_replaces_all_of_the_first(tmp_path):
    for name in ("first", "second"):
        with new_folder(tmp_path / "run", MARK) as folder:
            (folder / MARK).write_text(name)
            (folder / name).write_text("x")
    assert listing(tmp_path) == ["run", f"run/{MARK}", "run/second"]


@pytest.mark.parametrize("error", [KeyboardInterrupt, ValueError])
def test_interrupted_run_leaves_the_previous_one(tmp_path, error):
    with new_folder(tmp_path / "run", MARK) as folder:
        (folder / MARK).write_text("first")
    with pytest.raises(error), new_folder(tmp_path / "run", MARK) as folder:
        (folder / "part").write_text("x")
        raise error
    assert listing(tmp_path) == ["run", f"run/{MARK}"]
    assert (tmp_path / "run" / MARK).read_text() == "first"


def test_failed_replacement_restores_the_previous_folder(tmp_path, monkeypatch):
    with new_folder(tmp_path / "run", MARK) as folder:
        (folder / MARK).write_text("first")
    replace, calls = os.replace, []

    def fails_at_the_second(source, target):
        calls.append(target)
        if len(calls) == 2:
            raise OSError("No space left on device")
        replace(source, target)

    monkeypatch.setattr(os, "replace", fails_at_the_second)
    with pytest.raises(OSError, match="No space left"), new_folder(tmp_path / "run", MARK):
        pass
    assert listing(tmp_path) == ["run", f"run/{MARK}"]


@pytest.mark.parametrize("mark", [None, MARK])
def test_folders_with_other_contents_are_not_replaced(tmp_path, mark):
    (tmp_path / "metrics.json").write_text("x")
    with pytest.raises(ValueError, match="is not empty.*; choose another --output"):
        check_replaceable(tmp_path, mark)
    with pytest.raises(ValueError, match="metrics.json is a file; choose another --output"):
        check_replaceable(tmp_path / "metrics.json", mark)
    assert listing(tmp_path) == ["metrics.json"]


def test_without_a_mark_nothing_is_replaced(tmp_path):
    (tmp_path / "run").mkdir()
    (tmp_path / "run" / MARK).touch()
    with pytest.raises(ValueError, match="is not empty"), new_folder(tmp_path / "run"):
        pass
    assert listing(tmp_path) == ["run", f"run/{MARK}"]


def test_empty_folders_may_be_used(tmp_path):
    (tmp_path / "run").mkdir()
    check_replaceable(tmp_path / "run")
