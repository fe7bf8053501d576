"""The images of a report: thumbnails of those that matter most, and the evidence of the model for its mistakes."""

from contextlib import suppress
from pathlib import Path

import numpy as np
from PIL import Image

from keras_vit.images.rgb import as_rgb
from keras_vit.recipes.evaluation.label_issues import find_label_issues
from keras_vit.recipes.evaluation.predictions import Predictions
from keras_vit_cli.evidence import affordable_images, evidence, evidence_undefined
from keras_vit_cli.page import Section, image_rows, pixel_url

MOST_THUMBNAILS = 200
SHOWN = 12  # mistakes, and uncertain images
SIDE, EVIDENCE_SIDE = 128, 256  # pixels
MOST_NAMES = 20_000  # of images behind buttons


class Gallery:
    """Thumbnails of the images of a table, read from their files.

    Args:
        predictions: Its files are local paths, or nothing is shown of them.
        lists: See `image_lists`.
        pixel_range: See `keras_vit.Preprocessing`.
    """

    def __init__(self, predictions: Predictions, lists: dict[str, list[int]], pixel_range=None):
        self.predictions, self.lists, self.pixel_range = predictions, lists, pixel_range
        probabilities = predictions.probabilities
        if predictions.multi_label:  # the distance from 0.5 of the least certain class; the worst of the wrong ones
            distances = np.abs(probabilities - 0.5)
            wrong = (probabilities >= 0.5) != predictions.correct
            self.confidence, mistaken = distances.min(-1), np.where(wrong, distances, -1).max(-1)
        else:
            wrong = ~predictions.right & predictions.correct.any(-1)
            top = np.sort(probabilities, axis=-1)[:, -2:]
            self.confidence = top[:, -1] - (top[:, 0] if probabilities.shape[1] > 1 else 0)
            mistaken = np.where(wrong, probabilities.max(-1), -1)
        order = np.argsort(-mistaken, kind="stable")
        self.mistakes: list[int] = order[: min(SHOWN, int((mistaken >= 0).sum()))].tolist()
        self.uncertain: list[int] = np.argsort(self.confidence, kind="stable")[:SHOWN].tolist()
        self.doubtful: list[int] = find_label_issues(predictions)[:SHOWN].tolist()
        self.thumbnails = self._thumbnails()

    def notes(self) -> list[str]:
        """A sentence if no image is found."""
        if self.thumbnails or not self.predictions.files:
            return []
        first = self.predictions.files[0]
        return [f"No image is shown: there is no file {first}, seen from {Path.cwd()}, where the report was made."]

    def data(self) -> dict:
        """What the script of the page shows: of each image behind a button its file, prediction and thumbnail."""
        rows = sorted({row for rows in self.lists.values() for row in rows})
        kept = set(rows if len(rows) <= MOST_NAMES else [row for row in rows if not self.predictions.right[row]])
        names = self.predictions.class_names
        images = {
            row: [
                self.predictions.files[row],
                "; ".join(names[i] for i in np.flatnonzero(self.predictions.correct[row])),
                f"{names[self.predictions.predicted[row]]} {self.predictions.probabilities[row].max():.1%}",
                self.thumbnails.get(row),
            ]
            for row in sorted(kept)
        }
        return {"images": images, "lists": self.lists}

    def sections(self, model) -> list[Section]:
        """The mistakes and the uncertain images, each with the evidence of a model, where that is defined.

        Args:
            model: A Keras model, or None.
        """
        chosen = [
            ("Most confident mistakes", "Wrong predictions with the highest probabilities.", self.mistakes),
            ("Least certain images", "The two most likely classes are nearly as likely.", self.uncertain),
        ]
        rows = dict.fromkeys(row for row in [*self.mistakes, *self.uncertain] if row in self.thumbnails)
        shown, explanation = self._evidence(model, list(rows))
        drawn = [[self._cell(row)] for row in self.doubtful if row in self.thumbnails]
        doubts = "Labels in doubt (confident learning, arXiv 1911.00068), the likeliest to be wrong first."
        cells = {row: [self._cell(row), *([(shown[row], "evidence")] if row in shown else [])] for row in rows}
        return [
            (title, f"{text} {explanation}", image_rows(images))
            for title, text, of_section in chosen
            if (images := [cells[row] for row in of_section if row in cells])
        ] + ([("Possibly mislabeled", doubts, image_rows(drawn))] if drawn else [])

    def _evidence(self, model, rows: list[int]) -> tuple[dict[int, np.ndarray], str]:
        """The evidence for the predicted classes of the first of the rows, and what to say of it."""
        if model is None:
            return {}, ""
        if reason := evidence_undefined(model):
            return {}, f"No evidence for the predicted classes by {model.name}: {reason}."
        count = affordable_images(model)
        if not count:
            return {}, f"No evidence for the predicted classes: {model.name} has too many patches to multiply."
        files = {row: Path(self.predictions.files[row]) for row in rows[:count]}
        shown = {
            row: _smaller(evidence(model, as_rgb(file, self.pixel_range)), EVIDENCE_SIDE) for row, file in files.items()
        }
        beside = "each image" if count >= len(rows) else f"{count} of {len(rows)} images, since each takes seconds"
        return shown, f"Beside {beside}: the patches that speak for the predicted class, in orange."

    def _cell(self, row) -> tuple[np.ndarray, str]:
        file = Path(self.predictions.files[row])
        names = self.predictions.class_names
        truth = ", ".join(names[i] for i in np.flatnonzero(self.predictions.correct[row])) or "no label"
        best = self.predictions.predicted[row]
        caption = f"{file.name}: {names[best]} {self.predictions.probabilities[row, best]:.1%}, true: {truth}"
        return _smaller(as_rgb(file, self.pixel_range), EVIDENCE_SIDE), caption

    def _thumbnails(self) -> dict[int, str]:
        """data: URLs by row: mistakes and uncertain images, then some of each button in turn, wrong ones first."""
        right = self.predictions.right
        queues = [list(rows) for _, rows in sorted(self.lists.items(), key=lambda item: all(right[item[1]]))]
        order = dict.fromkeys([*self.mistakes, *self.uncertain, *self.doubtful])
        while len(order) < MOST_THUMBNAILS and any(queues):
            order.update(dict.fromkeys(queue.pop(0) for queue in queues if queue))
        urls = {}
        for row in list(order)[:MOST_THUMBNAILS]:
            with suppress(OSError, ValueError):  # no file, or one that has changed since
                urls[row] = pixel_url(_smaller(as_rgb(Path(self.predictions.files[row]), self.pixel_range), SIDE))
        return urls


def _smaller(pixels: np.ndarray, side: int) -> np.ndarray:
    """An image (H, W, 3) uint8 whose longer side has at most `side` pixels."""
    image = Image.fromarray(pixels)
    image.thumbnail((side, side))
    return np.asarray(image)
