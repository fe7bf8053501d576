import pytest

from keras_vit_cli.fresh_folder import MARK, check_replaceable, fresh_folder


def listing(path):
    return sorted(str(file.relative_to(path)) for file in path.rglob("*"))


def test_the_folder_appears_when_the_block_ends(tmp_path):
    with fresh_folder(tmp_path / "deep" / "run") as folder:
        (folder / MARK).write_text("1")
        assert not (tmp_path / "deep" / "run").exists()
    assert listing(tmp_path) == ["deep", "deep/run", f"deep/run/{MARK}"]


def test_a_second_run_replaces_the_first_whole(tmp_path):
    for name in ("first", "second"):
        with fresh_folder(tmp_path / "run") as folder:
            (folder / MARK).write_text(name)
            (folder / name).write_text("x")
    assert listing(tmp_path) == ["run", f"run/{MARK}", "run/second"]


@pytest.mark.parametrize("error", [KeyboardInterrupt, ValueError])
def test_an_interrupted_run_leaves_the_former_one(tmp_path, error):
    with fresh_folder(tmp_path / "run") as folder:
        (folder / MARK).write_text("first")
    with pytest.raises(error), fresh_folder(tmp_path / "run") as folder:
        (folder / "half").write_text("x")
        raise error
    assert listing(tmp_path) == ["run", f"run/{MARK}"]
    assert (tmp_path / "run" / MARK).read_text() == "first"


def test_a_folder_of_something_else_is_left_alone(tmp_path):
    (tmp_path / "thesis.tex").write_text("x")
    with pytest.raises(ValueError, match="left alone. Choose another --output"):
        check_replaceable(tmp_path)
    with pytest.raises(ValueError, match="left alone"):
        check_replaceable(tmp_path / "thesis.tex")
    assert listing(tmp_path) == ["thesis.tex"]


def test_an_empty_folder_may_be_used(tmp_path):
    (tmp_path / "run").mkdir()
    check_replaceable(tmp_path / "run")
