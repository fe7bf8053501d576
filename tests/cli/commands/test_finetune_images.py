"""Copies of training images among the test images."""

import numpy as np
import pytest
from PIL import Image
from sklearn.datasets import load_sample_image

from keras_vit_cli.commands.finetune.images import count_copies, describe, find_copies, write_copies


@pytest.fixture
def crops(tmp_path):
    """48 parts of a photograph that do not overlap, files by number."""
    photograph = load_sample_image("china.jpg")
    for i in range(48):
        top, left = 70 * (i // 8), 80 * (i % 8)
        Image.fromarray(photograph[top : top + 70, left : left + 80]).save(tmp_path / f"{i}.png")
    return lambda i: str(tmp_path / f"{i}.png")


def test_identical_and_similar_images(crops, tmp_path):
    random = np.random.default_rng(1)
    training, test = [crops(i) for i in range(30)], [crops(i) for i in range(40, 48)]
    same, view, mirrored, flat, other_flat, damaged = (
        str(tmp_path / name)
        for name in ("same.png", "view.jpg", "mirrored.webp", "flat.png", "other-flat.png", "damaged.png")
    )
    (tmp_path / "same.png").write_bytes((tmp_path / "3.png").read_bytes())
    pixels = np.asarray(Image.open(crops(17))).astype(int)
    Image.fromarray((pixels + random.integers(-8, 9, pixels.shape)).clip(0, 255).astype("uint8")).save(view)
    Image.open(crops(27)).transpose(Image.Transpose.FLIP_LEFT_RIGHT).resize((90, 90)).save(mirrored)
    Image.new("RGB", (32, 32), "red").save(flat)
    Image.new("RGB", (32, 32), "green").save(other_flat)
    (tmp_path / "damaged.png").write_bytes(b"no image")
    copies = find_copies([*training, flat, damaged], [*test, same, view, mirrored, other_flat])
    assert copies == [(same, crops(3)), (view, crops(17)), (mirrored, crops(27))]
    assert find_copies([flat], [flat]) == [(flat, flat)] and find_copies([damaged], test) == []
    assert describe(copies, 12).startswith("3 of 12 test images are copies")
    assert count_copies(tmp_path) == 0
    write_copies(tmp_path, copies)
    assert count_copies(tmp_path) == 3
    write_copies(tmp_path, [])  # the copies were removed before the next start
    assert count_copies(tmp_path) == 0
