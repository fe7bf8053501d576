"""Images of a folder, read for a model, and how many of them fit into a report."""

import re

import numpy as np
import pytest
from PIL import Image

from keras_vit.images.preprocessing import Preprocessing
from keras_vit.images.rgb import as_rgb
from keras_vit.recipes.data.image_folder import walk_files
from keras_vit.recipes.prepare.outcomes import UNREADABLE, examine
from keras_vit_cli.commands.inspect.report import AttentionData
from keras_vit_cli.image_files import (
    ImageBatch,
    list_images,
    print_note_on_range,
    read_images,
    unreadable_reason,
    without_damaged,
)


def test_other_and_damaged_files_are_named(toy, tmp_path, capsys):
    Image.new("F", (16, 16)).save(tmp_path / "1.tiff")
    with pytest.raises(ValueError, match=r"1.tiff .*floats"):
        read_images(toy().preprocessing, tmp_path, [tmp_path / "1.tiff"])
    (tmp_path / "1.tiff").unlink()
    Image.new("RGB", (16, 16)).save(tmp_path / "1.jpg")
    (tmp_path / "2.jpg").write_bytes((tmp_path / "1.jpg").read_bytes()[:-40])
    (tmp_path / "3.HEIC").write_bytes(b"")
    (tmp_path / "4.gif87").write_bytes(b"")
    (tmp_path / ".hidden").write_bytes(b"")
    files = list_images(tmp_path)
    assert [file.name for file in files] == ["1.jpg", "2.jpg", "3.HEIC"]
    assert re.search(rf"1 skipped, since their names .* other images: {tmp_path}/4.gif87", capsys.readouterr().err)
    assert without_damaged(files) == files[:1]
    errors = capsys.readouterr().err
    assert f"{tmp_path}/2.jpg" in errors and "pip install pillow-heif" in errors
    with pytest.raises(ValueError, match="2.jpg"):
        without_damaged(files[1:2])


HEIC = b"\0\0\0\x18ftypheic\0\0\0\0mif1heic"


@pytest.mark.parametrize("name", ["1.HEIC", "1.jpg"])
def test_heic_files_are_named_with_what_reads_them(tmp_path, name):
    (tmp_path / "a").mkdir()
    (tmp_path / "a" / name).write_bytes(HEIC)
    assert "pip install pillow-heif" in unreadable_reason(tmp_path / "a" / name)
    outcome, _, (error,) = examine(f"a/{name}", str(tmp_path))
    assert outcome == UNREADABLE and "pip install pillow-heif" in error
    with pytest.raises(ValueError, match="JPEG"):
        as_rgb(tmp_path / "a" / name)


def test_linked_folders_are_read_and_links_to_their_own_folder_are_not(tmp_path):
    (inside := tmp_path / "images" / "a").mkdir(parents=True)
    (outside := tmp_path / "b" / "c").mkdir(parents=True)
    for folder in (inside, outside):
        Image.new("RGB", (4, 4)).save(folder / "1.png")
    (tmp_path / "images" / "b").symlink_to(tmp_path / "b")
    (inside / "again").symlink_to(tmp_path / "images")
    (outside / "back").symlink_to(inside)
    names = ["a/1.png", "b/c/1.png", "b/c/back/1.png"]
    assert [str(file.relative_to(tmp_path / "images")) for file in list_images(tmp_path / "images")] == names
    assert sorted(walk_files(str(tmp_path / "images"))) == names


@pytest.mark.slow
def test_size_limit_of_the_attention_in_a_report(trained_toy):
    model = trained_toy(depth=5)  # 3 * 17 * (17 + 4) bytes per layer, 7,140 characters of base64 per image
    pixels = np.zeros((4, 16, 16, 3), "uint8")
    images = ImageBatch(["a", "b", "c", "d"], pixels / np.float32(127.5) - 1, pixels)
    every = [1, 2, 3, 4, 5]
    for limit, num_images, layers in (0.0286, 4, every), (0.0285, 3, every), (0.0044, 1, [1, 3, 5]), (1e-6, 1, [5]):
        data = AttentionData(model, images, limit)
        stored = data.as_dict()
        assert len(stored["images"]) == num_images == 4 - data.num_omitted and stored["layers"] == layers
        assert len(stored["images"][0]["levels"]) == -(-17 * 17 * 3 * len(layers) // 3) * 4
        size = sum(len(image[key]) for image in stored["images"] for key in ("levels", "steps"))
        assert size <= 1e6 * limit or layers == [5]


@pytest.mark.parametrize(
    "largest,pixel_range,noted", [(4095, None, True), (4095, (0, 4095), False), (65535, None, False)]
)
def test_dark_images_of_16_bits_are_noted(tmp_path, capsys, largest, pixel_range, noted):
    Image.fromarray(np.full((4, 4), largest, "uint16")).save(tmp_path / "1.png")
    Image.new("RGB", (4, 4)).save(tmp_path / "2.png")
    print_note_on_range(Preprocessing(image_size=(4, 4), pixel_range=pixel_range), sorted(tmp_path.iterdir()))
    assert ("1 images have 16 bits" in capsys.readouterr().err) == noted
