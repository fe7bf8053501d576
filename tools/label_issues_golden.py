"""Writes tests/data/label_issues.json: images that cleanlab 2.9.0 doubts. Requires pip install cleanlab."""

import json
from pathlib import Path

import numpy as np
from cleanlab.filter import find_label_issues

FILE = Path(__file__).parents[1] / "tests/data/label_issues.json"


def main():
    """Draws labels of which some are wrong, and probabilities of a model that knows the classes roughly."""
    cases = []
    for seed, (images, classes, wrong, certainty) in enumerate([(60, 2, 0.1, 2), (120, 3, 0.15, 1), (200, 5, 0.1, 3)]):
        random = np.random.default_rng(seed)
        true = random.integers(0, classes, images)
        labels = np.where(random.random(images) < wrong, random.integers(0, classes, images), true)
        logits = random.normal(size=(images, classes)) + certainty * np.eye(classes)[true]
        probabilities = np.exp(logits) / np.exp(logits).sum(-1, keepdims=True)
        probabilities = (probabilities.round(4) + 1e-4) / (probabilities.round(4) + 1e-4).sum(-1, keepdims=True)
        issues = find_label_issues(
            labels, probabilities, filter_by="confident_learning", return_indices_ranked_by="self_confidence"
        )
        cases.append(
            {"labels": labels.tolist(), "probabilities": probabilities.round(6).tolist(), "issues": issues.tolist()}
        )
    FILE.write_text(json.dumps(cases) + "\n")


if __name__ == "__main__":
    main()
