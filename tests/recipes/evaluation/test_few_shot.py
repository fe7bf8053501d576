from pathlib import Path

import numpy as np
import pytest
import tensorflow as tf
from images_on_disk import jpeg
from sklearn.datasets import load_digits
from sklearn.linear_model import Ridge

from keras_vit import Preprocessing
from keras_vit.recipes.data import decoded_images, open_dataset, read_labels
from keras_vit.recipes.evaluation.few_shot import FewShot, choose_shots, few_shot, least_squares
from keras_vit.recipes.recipe import Data
from keras_vit.recipes.recipe.errors import RecipeError


class Pixels:
    """A model whose features are the pixels."""

    def preprocess(self, images):
        return np.stack(images)[..., :1] / 255.0

    def features(self, images):
        return images.reshape(len(images), -1)


def write_images(folder, values_of):
    """Writes JPEG files of one gray value each."""
    for name, values in values_of.items():
        (folder / name).mkdir(parents=True)
        for value in values:
            (folder / name / f"{value}.jpg").write_bytes(jpeg(value))


def standardize(train, test):
    """By the training features; appends a constant of 100."""
    parts = ((part - train.mean(0)) / (train.std(0) + 1e-5) for part in (train, test))
    return [np.concatenate([part, np.full((len(part), 1), 100.0)], axis=1) for part in parts]


@pytest.mark.parametrize("shots", [3, 40], ids=["more features", "more images"])
def test_scores_match_ridge_of_scikit_learn(shots):
    """(X^T X + l2 I)^-1 X^T Y, and X^T (X X^T + l2 I)^-1 Y if there are fewer images than features."""
    digits = load_digits()
    used = np.concatenate(choose_shots(digits.target, shots, 10, seed=0))
    train, test = digits.data[used], np.delete(digits.data, used, axis=0)
    x, y = standardize(train, test)
    ridge = Ridge(2.0**10, fit_intercept=False, solver="svd").fit(x, 2.0 * np.eye(10)[digits.target[used]] - 1.0)
    scores = least_squares(train, digits.target[used], test, 10, 2.0**10)
    np.testing.assert_allclose(scores, ridge.predict(y), atol=1e-4)
    assert np.mean(scores.argmax(axis=1) == np.delete(digits.target, used)) > 0.7


def test_shots_are_balanced_and_determined_by_the_seed():
    labels = np.random.default_rng(0).integers(0, 4, 100)
    chosen = np.array(choose_shots(labels, 6, 4, seed=1))
    assert chosen.shape == (4, 6) and len(np.unique(chosen)) == 24
    assert (labels[chosen] == np.arange(4)[:, None]).all()
    np.testing.assert_array_equal(chosen, choose_shots(labels, 6, 4, seed=1))
    assert not np.array_equal(chosen, choose_shots(labels, 6, 4, seed=2))
    # As big_vision, evaluators/fewshot_lsr.py: of classes with 3 images and 1, and one without any.
    labels, random = np.array([0, 1, 0, 0]), np.random.default_rng(5)
    for number, indices in enumerate(choose_shots(labels, 25, 3, seed=5)):
        np.testing.assert_array_equal(indices, random.permutation(np.where(labels == number)[0])[:25])


def test_classes_with_fewer_images_contribute_all(tmp_path):
    write_images(tmp_path, {"train/dark": (10, 30, 20), "train/light": (240,)})
    write_images(tmp_path, {"test/dark": (15,), "test/light": (230,)})
    recipe, lines = FewShot(Data(dataset=f"folder:{tmp_path}"), (1, 2, 25), (0, 1), 1.0, resizing="weights"), []
    assert few_shot(Pixels(), recipe, log=lines.append) == {shots: [1.0, 1.0] for shots in (1, 2, 25)}
    assert lines[0].startswith("4 training and 2 test images") and lines[0].endswith("99 features")
    assert [line.count("1 to 3 available") for line in lines] == [0, 0, 1, 1]
    assert [line.count("±") for line in lines] == [0, 1, 1, 0]  # of 25 both seeds draw all images


def test_corrupt_images_are_skipped(tmp_path, monkeypatch, capsys):
    """Least squares receives aligned features and labels of the others in the draw."""
    received, lines = [], []

    def recorded(train, labels, *rest):
        received.append(sorted(zip(labels.tolist(), np.rint(255 * train[:, 0]).astype(int).tolist())))
        return least_squares(train, labels, *rest)

    monkeypatch.setattr("keras_vit.recipes.evaluation.few_shot.least_squares", recorded)
    write_images(tmp_path, {"train/dark": range(0, 80, 10), "train/light": (200, 210, 220, 230)})
    write_images(tmp_path, {"test/dark": (15, 40), "test/light": (230, 240)})
    recipe = FewShot(Data(dataset=f"folder:{tmp_path}"), shots=(3,), seeds=(0,), l2=1.0, resizing="weights")
    dataset = open_dataset(recipe.data)
    names = [name.decode() for name, _, _ in dataset.read("train").as_numpy_iterator()]
    draw = [[names[i] for i in indices] for indices in choose_shots(read_labels(dataset, "train"), 3, 2, seed=0)]
    corrupt = [draw[0][0], draw[1][1], f"{tmp_path}/test/light/240.jpg"]
    for file in corrupt:
        Path(file).write_bytes(b"no image")
    assert few_shot(Pixels(), recipe, log=lines.append) == {3: [1.0]}
    assert lines[0].startswith("10 training and 3 test images")
    expected = [(label, int(Path(name).stem)) for label in (0, 1) for name in draw[label] if name not in corrupt]
    assert received == [sorted(expected)]
    printed = capsys.readouterr().err
    assert [printed.count(name) for name in corrupt] == [1, 1, 1]
    for file in tmp_path.glob("test/*/*"):
        file.write_bytes(b"no image")
    with pytest.raises(ValueError, match="No image of 'test'"):
        few_shot(Pixels(), recipe)


def test_images_are_squashed_and_cropped_as_in_big_vision(data_dir):
    """decode|resize(256)|central_crop(224), which are 16 and 14 here; the weights' preprocessing is another one."""
    inputs = []

    class Recording(Pixels):
        preprocessing = Preprocessing(14, resize="shortest", interpolation="bicubic", antialias=True)

        def preprocess(self, images):
            return self.preprocessing(images)

        def features(self, images):
            inputs.append(np.asarray(images))
            return super().features(inputs[-1])

    data = Data(dataset="digits", data_dir=data_dir, train_split="test[:40]", test_split="test[:40]")
    images, _ = next(decoded_images(open_dataset(data), "test[:40]", 40))
    few_shot(Recording(), FewShot(data, seeds=(0,)))
    expected = tf.image.resize(np.stack(images), (16, 16))[:, 1:15, 1:15] / 127.5 - 1
    np.testing.assert_allclose(inputs[-1], expected, atol=1e-5)
    few_shot(Recording(), FewShot(data, seeds=(0,), resizing="weights"))
    np.testing.assert_allclose(inputs[-1], Recording.preprocessing(images), atol=1e-5)
    assert np.abs(inputs[-1] - expected).max() > 0.1


@pytest.mark.parametrize("change", [{"shots": ()}, {"shots": (0, 5)}, {"seeds": ()}, {"l2": 0.0}])
def test_invalid_settings(change):
    with pytest.raises(RecipeError) as error:
        FewShot(**change)
    assert error.value.received == change
