import errno
import os

import pytest

from keras_vit_cli.main import main
from keras_vit_cli.output_folder import check_replaceable, new_folder

MARK = "report.html"


def listing(path):
    return sorted(str(file.relative_to(path)) for file in path.rglob("*"))


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


def test_a_full_disk_is_named_as_the_user_does(tmp_path):
    for name in (None, "model.tflite"):
        with pytest.raises(OSError) as raised, new_folder(tmp_path / "run") as folder:
            raise OSError(errno.ENOSPC, "No space left on device", name and str(folder / name))
        assert raised.value.filename == str(tmp_path / "run") and not listing(tmp_path)


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
    with pytest.raises(ValueError, match="run is not replaced: No space left on device. The result is") as raised:
        with new_folder(tmp_path / "run", MARK) as folder:
            (folder / "new").touch()
    kept = str(raised.value).rpartition("/")[2].rstrip(".")
    assert listing(tmp_path / "run") == [MARK] and listing(tmp_path / kept) == ["new"]


def test_a_folder_that_others_wrote_meanwhile_is_not_replaced(tmp_path):
    with pytest.raises(ValueError, match="run is not replaced: something else wrote .* is complete in") as raised:
        with new_folder(tmp_path / "run", MARK) as folder:
            (folder / MARK).write_text("new")
            (tmp_path / "run").mkdir()
            (tmp_path / "run" / "thesis.txt").write_text("x")
    kept = str(raised.value).rpartition("/")[2].rstrip(".")
    assert listing(tmp_path / "run") == ["thesis.txt"] and listing(tmp_path / kept) == [MARK]
    assert sorted(os.listdir(tmp_path)) == ["run", kept] and not kept.startswith(".")


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


def test_a_folder_that_cannot_be_created_is_named_with_the_option(tmp_path):
    (tmp_path / "file").touch()
    message = r"/file/deep cannot be created \(Not a directory\); choose another --output\.$"
    with pytest.raises(ValueError, match=message), new_folder(tmp_path / "file" / "deep" / "run"):
        pass


def test_empty_folders_may_be_used(tmp_path):
    (tmp_path / "run").mkdir()
    check_replaceable(tmp_path / "run")


@pytest.mark.parametrize("command", [["demo"], ["export", "NAME", "--formats", "float32"]])
def test_a_training_run_is_never_replaced(tmp_path, capsys, command):
    names = ["metrics.json", "model.keras", "step-10.index"]
    for name in names:
        (tmp_path / name).write_text("x")
    assert main([*command, "--output", str(tmp_path)]) == 1
    assert "is not empty" in capsys.readouterr().err
    assert sorted(file.name for file in tmp_path.iterdir()) == names
