"""ImageNet-V2, -A, -R and -Sketch: classes as in their authors' code, predictions among their classes alone."""

import numpy as np
import pytest
from PIL import Image

from keras_vit.class_names import imagenet_class_names
from keras_vit.recipes.data import decoded_images, open_dataset
from keras_vit.recipes.evaluation.classification import evaluate_classifier
from keras_vit.recipes.evaluation.imagenet_variants import scored_classes, variant_images, variant_labels
from keras_vit.recipes.recipe import Data

IDS = [wordnet_id for wordnet_id, _ in imagenet_class_names()]
# The beginning of imagenet_r_indices and of indices_in_1k in the eval.py of hendrycks/imagenet-r and
# hendrycks/natural-adv-examples, and the sums of both.
FIRST = {"r": [1, 2, 4, 6, 8, 9, 11, 13, 22, 23, 26, 29, 31, 39, 47, 63], "a": [6, 11, 13, 15, 17, 22, 23, 27, 30, 37]}
SUM = {"r": 86135, "a": 102178}


@pytest.mark.parametrize("variant", ["a", "r"])
def test_subsets_are_those_of_the_authors_code(variant):
    scored = scored_classes(variant)
    assert scored[: len(FIRST[variant])].tolist() == FIRST[variant] and scored.sum() == SUM[variant]
    assert len(scored) == 200 and np.all(np.diff(scored) > 0)
    # TensorFlow Datasets has all 1,000 names, the archives have folders of 200.
    labels = variant_labels(IDS, variant)
    assert labels[scored].tolist() == list(range(200)) and (labels < 0).sum() == 800
    np.testing.assert_array_equal(variant_labels([IDS[number] for number in scored], variant), np.arange(200))


def test_folders_of_numbers_are_sorted_as_words():
    folders = sorted(map(str, range(1000)))
    assert folders[:3] == ["0", "1", "10"]
    np.testing.assert_array_equal(variant_labels(folders, "v2"), [int(name) for name in folders])
    np.testing.assert_array_equal(variant_labels(IDS, "v2"), np.arange(1000))
    np.testing.assert_array_equal(variant_labels(IDS, "sketch"), np.arange(1000))


def test_images_with_several_labels_raise():
    batches = [([], np.zeros((2, 1000), "float32"))]
    with pytest.raises(ValueError, match="one label per image. Received: a dataset with several"):
        next(variant_images(batches, variant_labels(IDS, "sketch")))


def test_names_of_other_data_raise():
    with pytest.raises(ValueError, match="2 of the 3 classes are not ImageNet's: cat, 7. Expected WordNet ids such as"):
        variant_labels(["cat", IDS[0], "7"], "sketch")
    with pytest.raises(ValueError, match="1 of the 2 classes .*: 1000. Expected numbers from 0 to 999"):
        variant_labels(["999", "1000"], "v2")
    with pytest.raises(ValueError, match="198 of the 200 classes of ImageNet-R have no images: n01494475, n01498041"):
        variant_labels([IDS[1], IDS[2]], "r")
    with pytest.raises(ValueError, match="998 of the 1,000 classes of ImageNet-V2 have no images: 1, 2, 4"):
        variant_labels(["0", "3"], "v2")
    with pytest.raises(ValueError, match="must be one of v2, a, r, sketch. Received: 'c'"):
        scored_classes("c")
    with pytest.raises(ValueError, match="images of other classes. Check the variant"):
        list(variant_images([(["image"], np.array([0]))], variant_labels(IDS, "r")))


@pytest.mark.slow
def test_predictions_are_among_the_classes_of_the_variant(trained_toy, tmp_path):
    random, scored = np.random.default_rng(0), scored_classes("r")
    for number in scored:
        (tmp_path / IDS[number]).mkdir()
        for i in range(2):  # one of them is in the split "test"
            image = random.integers(0, 256, (8, 8, 3), dtype="uint8")
            Image.fromarray(image).save(tmp_path / IDS[number] / f"{i}.png")
    model, dataset = trained_toy(image_size=8, num_classes=1000, depth=1), open_dataset(Data(f"folder:{tmp_path}"))
    images, labels = next(decoded_images(dataset, "train+test", 400))
    # The largest of all 1,000 is never in the subset, and the largest within it often the first class.
    bias = 100.0 * ~np.isin(np.arange(1000), scored) + 1.0 * (np.arange(1000) == scored[0])
    model.head.bias.assign_add(bias)
    logits = np.asarray(model(model.preprocess(images)))
    assert not np.isin(logits.argmax(axis=1), scored).any()
    # As eval.py: output[:, imagenet_r_mask], whose columns are in the order of the folders.
    right = logits[:, np.isin(np.arange(1000), scored)].argmax(axis=1) == labels
    summary = evaluate_classifier(model, dataset, "train+test", imagenet_variant="r").summary
    assert summary["images"] == summary["counted"] == 400
    assert summary["top1"] == pytest.approx(right.mean()) and 0 < right.mean() < 1
    with pytest.raises(ValueError, match="has 200 classes, but the model has 1000"):
        evaluate_classifier(model, dataset, "train+test")
    with pytest.raises(ValueError, match="Set either objectnet_mapping or imagenet_variant"):
        evaluate_classifier(model, dataset, "train+test", imagenet_variant="r", objectnet_mapping=tmp_path)
