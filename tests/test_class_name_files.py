"""Class names in files, and how lists of them differ."""

import pytest

from keras_vit.class_names.files import (
    checked_lines,
    class_names_text,
    describe_difference,
    labels_file,
    own_class_names,
    read_class_names,
)


@pytest.mark.parametrize("name", ["a\nb", "a\r", "a\u2028b", "a\x0bb", "", "  ", 3])
def test_names_that_are_not_one_line_raise(name):
    """str.splitlines reads each of them as another number of names."""
    for function in (checked_lines, class_names_text):
        with pytest.raises(ValueError, match="must be one line of text. Received: .* for class 1"):
            function(["ok", name])


def test_names_are_read_as_written(tmp_path):
    names = ["tench, Tinca tinca", " indented", "naïve", "a\tb"]
    (tmp_path / "x").write_text(class_names_text(names), encoding="utf-8")
    assert read_class_names(tmp_path / "x") == names
    (tmp_path / "x").write_text(class_names_text(names), encoding="utf-8-sig")  # with a byte order mark
    assert read_class_names(tmp_path / "x") == names
    for content, message in ((b"", "is empty"), (b"\xff\n", "is not UTF-8 text"), (b"a\n\nb\n", "one line of text")):
        (tmp_path / "x").write_bytes(content)
        with pytest.raises(ValueError, match=message):
            read_class_names(tmp_path / "x")


def test_place_of_a_models_names(tmp_path):
    assert labels_file(tmp_path) == tmp_path / "labels.txt"
    assert labels_file(tmp_path / "model.keras") == tmp_path / "labels.txt"
    assert labels_file(tmp_path / "deit.npz") == tmp_path / "deit.npz.labels.txt"
    (tmp_path / "labels.txt").write_text("a\nb\n")
    assert own_class_names(tmp_path, 2) == ["a", "b"]
    assert own_class_names(tmp_path, 0) is None and own_class_names(tmp_path / "deit.npz", 2) is None
    assert own_class_names("vit/imagenet21k/ViT-B_16", 2) is None and own_class_names("hf:google/vit", 2) is None
    with pytest.raises(ValueError, match="labels.txt has 2 class names, but the model beside it has 3 classes"):
        own_class_names(tmp_path, 3)


@pytest.mark.parametrize(
    "there,here,expected",
    [
        ("abc", "abc", ""),
        ("abc", "acb", "the order differs: class 1 is 'b' there, but 'c' here"),
        ("abc", "abx", "missing here: 'c'; new here: 'x'"),
        ("abcdefgh", "a", "8 classes there, 1 here; missing here: 'b', 'c', 'd', 'e', 'f' and 2 more"),
        ("aab", "abb", "class 1 is 'a' there, but 'b' here"),
    ],
)
def test_differences(there, here, expected):
    assert describe_difference(there, here) == expected
