import pytest

from keras_vit.recipes.data.folder_layout import check_layout, only_class


@pytest.fixture
def fill(tmp_path):
    def write(*files):
        for file in files:
            (tmp_path / file).parent.mkdir(parents=True, exist_ok=True)
            (tmp_path / file).touch()
        return str(tmp_path)

    return write


@pytest.mark.parametrize(
    "files,name",
    [
        (["cat/1.JPG", "dog/1.png"], None),
        (["train/cat/1.jpg", "test/dog/1.jpg"], None),
        (["cat/1.jpg", "2.jpg", "notes/1.txt"], "cat"),
        (["train/cat/1.jpg", "test/cat/2.jpg"], "cat"),
    ],
)
def test_folders_of_classes(fill, files, name):
    folder = fill(*files)
    check_layout(folder)
    assert only_class(folder) == name


@pytest.mark.parametrize(
    "files,found",
    [
        ([], "there are none"),
        (["cat/1.txt", "cat/._1.jpg"], "there are none"),
        ([".hidden/1.jpg"], "the first one found is .hidden/1.jpg"),
        (["2.jpg", "1.jpg"], "the first one found is 1.jpg"),
        (["a/b/c/1.jpg"], "the first one found is a/b/c/1.jpg"),
    ],
)
def test_other_folders(fill, files, found):
    folder = fill(*files)
    with pytest.raises(ValueError, match=f"not laid out as .*, .webp; {found}.$"):
        check_layout(folder)
    assert only_class(folder) is None


def test_links_to_folders_are_folders(fill, tmp_path):
    folder = fill("elsewhere/cat/1.jpg", "data/x.txt")
    (tmp_path / "data" / "cat").symlink_to(f"{folder}/elsewhere/cat")
    (tmp_path / "data" / "loop").symlink_to(f"{folder}/data")
    check_layout(f"{folder}/data")
    assert only_class(f"{folder}/elsewhere") == "cat"
