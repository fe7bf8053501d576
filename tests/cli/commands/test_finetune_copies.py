"""Copies of training images among the test images."""

import re
from pathlib import Path

import numpy as np
import pytest
from PIL import Image
from sklearn.datasets import load_sample_image

from keras_vit.recipes.data import open_dataset
from keras_vit.recipes.data.groups import ImageTable
from keras_vit.recipes.data.image_folder import split_by_hash
from keras_vit.recipes.evaluation.predictions import write_predictions
from keras_vit.recipes.recipe import Data
from keras_vit_cli.commands.finetune.copies import copies_warning, read_copies, unite_copies, write_copies
from keras_vit_cli.copies import describe_copies, find_copies, hash_files


def copies_of(training, test):
    return find_copies(hash_files(training), hash_files(test))


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
    copies = copies_of([*training, flat, damaged], [*test, same, view, mirrored, other_flat])
    assert copies == [(same, crops(3)), (view, crops(17)), (mirrored, crops(27))]
    assert copies_of([flat], [flat]) == [(flat, flat)] and copies_of([damaged], test) == []
    assert describe_copies(copies, 12).startswith("3 of 12 test images are copies")
    assert read_copies(tmp_path) == copies_warning(tmp_path) == []
    write_copies(tmp_path, copies)
    assert read_copies(tmp_path) == [same, view, mirrored]
    with write_predictions(tmp_path / "predictions.csv", ["cat", "dog"], "softmax") as table:
        table.add([same, view, mirrored, "a", "b"], np.eye(2)[[0, 0, 0, 1, 0]], [0, 0, 0, 0, 0])
    assert "Without them it is 50.0 % [9.5, 90.5], 1 of 2 images." in copies_warning(tmp_path)[0]
    write_copies(tmp_path, [])  # the copies were removed before the next start
    assert read_copies(tmp_path) == []


def test_copies_stay_on_one_side_of_the_split(crops, tmp_path):
    for number in range(48):
        place = tmp_path / "photos" / ("cat" if number % 2 else "dog")
        place.mkdir(parents=True, exist_ok=True)
        content = Path(crops(number)).read_bytes()
        (place / f"{number}.png").write_bytes(content)
        if number < 24:
            (place / f"{number} copy.png").write_bytes(content)
        elif number < 36:  # a copy of a copy, in half of the size
            Image.open(crops(number)).resize((160, 140)).save(place / f"{number}_large.jpg", quality=95)
            (place / f"{number}_large (1).jpg").write_bytes((place / f"{number}_large.jpg").read_bytes())
    folder = str(tmp_path / "photos")
    files = sorted(path.relative_to(folder).as_posix() for path in Path(folder).rglob("*.*"))
    images = [(file.split("/")[0], file) for file in files]
    hashes = hash_files([f"{folder}/{file}" for file in files])
    groups = unite_copies(hashes, folder, images, {})
    ImageTable(groups).write(tmp_path / "groups.csv")
    dataset = open_dataset(Data(f"folder:{folder}", group=str(tmp_path / "groups.csv")))
    side = {}
    for split in ("train", "test"):
        for name, *_ in dataset.read(split).as_numpy_iterator():
            side.setdefault(re.match(r"\d+", Path(name.decode()).name)[0], set()).add(split)
    assert len(set(groups.values())) == 48 and len(groups) == 48 + 24 + 2 * 12
    assert len(side) == 48 and all(len(splits) == 1 for splits in side.values())
    # The first file of each decides: nothing moves when copies come.
    firsts = split_by_hash([image for image in images if re.fullmatch(r".*/\d+.png", image[1])])
    for split, of_split in firsts.items():
        assert all(side[Path(file).stem] == {split} for _, file in of_split)
    originals = [image for image in images if re.fullmatch(r".*/\d+.png", image[1])]
    assert unite_copies(hash_files([f"{folder}/{file}" for _, file in originals]), folder, originals, {}) is None
    # Groups of a regular expression are united as a whole.
    pairs = {file: f"pair {int(re.match('[0-9]+', Path(file).name)[0]) // 2}" for file in files}
    both = unite_copies(hashes, folder, images, {**pairs, "dog/0 copy.png": "other"})
    assert both is None or both["dog/0 copy.png"] == both["dog/0.png"] == both["cat/1.png"]


def test_views_of_one_scene_do_not_tie_a_folder_together(tmp_path):
    """Nearly identical images of all kinds would leave no test set: then only files with the same bytes are united."""
    random = np.random.default_rng(0)
    scene = np.asarray(Image.fromarray(random.integers(0, 256, (6, 6, 3), "uint8")).resize((64, 64))).astype(int)
    images = []
    for number in range(40):
        name = "cat" if number % 2 else "dog"
        (tmp_path / name).mkdir(exist_ok=True)
        noise = random.integers(-6, 7, scene.shape)
        Image.fromarray((scene + noise).clip(0, 255).astype("uint8")).save(tmp_path / name / f"{number}.png")
        images.append((name, f"{name}/{number}.png"))
    hashes = hash_files([f"{tmp_path}/{file}" for _, file in images])
    assert unite_copies(hashes, str(tmp_path), images, {}) is None
    train, test = ([f"{tmp_path}/{file}" for _, file in split] for split in split_by_hash(images).values())
    assert len(copies_of(train, test)) == len(test)
