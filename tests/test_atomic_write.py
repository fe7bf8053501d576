import pytest

from keras_vit.atomic_write import new_files, write_file


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
