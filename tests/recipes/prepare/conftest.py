import pytest
from PIL import Image
from scenes import encoded, scene

FORMATS = ("JPEG", "PNG", "BMP")


@pytest.fixture
def source(tmp_path):
    """12 training images of three formats in two classes, 2 test images, 2 copies of these, 2 unreadable files."""
    root = tmp_path / "images"
    contents = {}
    for i in range(12):
        class_name, kind = "cat" if i % 2 else "dog", FORMATS[i % 3]
        contents[f"train/{class_name}/{i:02}.{kind.lower()}"] = encoded(scene(i), kind)
    for i, test in enumerate((scene(100), scene(101))):
        contents[f"test/{'cat' if i else 'bird'}/{i}.png"] = encoded(test, "PNG")
        copy = test.transpose(Image.Transpose.FLIP_LEFT_RIGHT) if i else test
        contents[f"train/cat/copy{i}.jpg"] = encoded(copy, quality=75)
    contents["train/dog/cut.jpg"] = contents["train/dog/00.jpeg"][:900]
    contents["train/dog/notes.txt"] = b"no image"
    contents["train/dog/.hidden"] = b"no image"
    for name, content in contents.items():
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_bytes(content)
    return root
