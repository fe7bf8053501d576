import pytest

from keras_vit.cli.fresh_folder import check_replaceable, fresh_folder
from keras_vit.cli.main import main

MARK = "report.html"


def listing(path):
    return sorted(str(file.relative_to(path)) for file in path.rglob("*"))


def test_the_folder_appears_when_the_block_ends(tmp_path):
    with fresh_folder(tmp_path / "deep" / "run") as folder:
        (folder / MARK).write_text("1")
        assert not (tmp_path / "deep" / "run").exists()
    assert listing(tmp_path) == ["deep", "deep/run", f"deep/run/{MARK}"]


def test_a_second_run_replaces_the_first_whole(tmp_path):
    for name in ("first", "second"):
        with fresh_folder(tmp_path / "run", MARK) as folder:
            (folder / MARK).write_text(name)
            (folder / name).write_text("x")
    assert listing(tmp_path) == ["run", f"run/{MARK}", "run/second"]


@pytest.mark.parametrize("error", [KeyboardInterrupt, ValueError])
def test_an_interrupted_run_leaves_the_former_one(tmp_path, error):
    with fresh_folder(tmp_path / "run", MARK) as folder:
        (folder / MARK).write_text("first")
    with pytest.raises(error), fresh_folder(tmp_path / "run", MARK) as folder:
        (folder / "half").write_text("x")
        raise error
    assert listing(tmp_path) == ["run", f"run/{MARK}"]
    assert (tmp_path / "run" / MARK).read_text() == "first"


@pytest.mark.parametrize("mark", [None, MARK])
def test_a_folder_of_something_else_is_left_alone(tmp_path, mark):
    (tmp_path / "metrics.json").write_text("x")
    with pytest.raises(ValueError, match="exists and is not empty.*; choose another --output"):
        check_replaceable(tmp_path, mark)
    with pytest.raises(ValueError, match="metrics.json is a file; choose another --output"):
        check_replaceable(tmp_path / "metrics.json", mark)
    assert listing(tmp_path) == ["metrics.json"]


@pytest.mark.parametrize("command", [["demo"], ["export", "NAME", "--formats", "float32"]])
def test_a_training_run_is_never_replaced(tmp_path, capsys, command):
    for name in ("model.keras", "metrics.json", "step-10.index"):
        (tmp_path / name).write_text("x")
    assert main([*command, "--output", str(tmp_path)]) == 1
    assert "exists and is not empty" in capsys.readouterr().err
    assert listing(tmp_path) == ["metrics.json", "model.keras", "step-10.index"]


def test_without_a_mark_nothing_is_replaced(tmp_path):
    (tmp_path / "run").mkdir()
    (tmp_path / "run" / MARK).touch()
    with pytest.raises(ValueError, match="exists and is not empty"), fresh_folder(tmp_path / "run"):
        pass
    assert listing(tmp_path) == ["run", f"run/{MARK}"]


def test_an_empty_folder_may_be_used(tmp_path):
    (tmp_path / "run").mkdir()
    check_replaceable(tmp_path / "run")
