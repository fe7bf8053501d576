"""Possibly mislabeled images, as cleanlab finds them (tools/label_issues_golden.py)."""

import json
from pathlib import Path

import numpy as np
import pytest

from keras_vit.recipes.evaluation.label_issues import find_label_issues
from keras_vit.recipes.evaluation.predictions import Predictions

CASES = json.loads((Path(__file__).parents[2] / "data" / "label_issues.json").read_text())


def predictions(labels, probabilities) -> Predictions:
    probabilities = np.array(probabilities, "float32")
    names = [f"class {number}" for number in range(probabilities.shape[1])]
    correct = np.array(labels)[:, None] == np.arange(len(names))
    return Predictions([f"{row}.jpg" for row in range(len(labels))], names, correct, probabilities)


@pytest.mark.parametrize("case", CASES, ids=lambda case: f"{len(case['probabilities'][0])} classes")
def test_the_images_are_those_of_cleanlab_in_its_order(case):
    rows = find_label_issues(predictions(case["labels"], case["probabilities"]))
    assert len(case["issues"]) >= 2 and rows.tolist() == case["issues"]


def test_a_class_without_images_and_several_labels_raise_no_doubts():
    labels, probabilities = (
        [0, 0, 0, 1, 1, 1],
        [[0.9, 0.1, 0], [0.8, 0.2, 0], [0, 0.1, 0.9], [0.2, 0.8, 0]]
        + [
            [0.1, 0.9, 0],
            [0.9, 0.1, 0],
        ],
    )
    table = predictions(labels, probabilities)
    assert find_label_issues(table).tolist() == [5]  # of image 2, no class with images is likely
    both = Predictions(table.files, table.class_names, np.ones((6, 3), bool), table.probabilities)
    assert find_label_issues(both).size == 0
