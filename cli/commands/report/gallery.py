"""The images of a report: thumbnails of those that matter most, and the evidence of the model for its mistakes."""

import html
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path

import numpy as np
from PIL import Image

from keras_vit.images.rgb import as_rgb
from keras_vit.recipes.evaluation.predictions import Predictions
from keras_vit_cli.commands.report.sections import Section
from keras_vit_cli.evidence import check_evidence, evidence
from keras_vit_cli.page import image_rows, pixel_url

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
        undefined = "Pass --model for the patches that speak for the predicted class." if model is None else ""
        if model is not None:
            try:
                check_evidence(model)
                undefined = " Beside each image: the patches that speak for the predicted class, in orange."
            except ValueError as error:
                model, undefined = None, str(error).replace("--attention", "Evidence")
        made = []
        for title, text, rows in (
            ("Most confident mistakes", "Wrong predictions with the highest probabilities.", self.mistakes),
            ("Least certain images", "The two most likely classes are nearly as likely.", self.uncertain),
        ):
            cells = [self._cells(row, model) for row in rows if row in self.thumbnails]
            if cells:
                made.append((title, f"{text} {undefined.strip()}", image_rows(cells)))
        return made

    def _cells(self, row, model) -> list[tuple[np.ndarray, str]]:
        file = self.predictions.files[row]
        names = self.predictions.class_names
        truth = ", ".join(names[i] for i in np.flatnonzero(self.predictions.correct[row])) or "no label"
        best = self.predictions.predicted[row]
        caption = f"{names[best]} {self.predictions.probabilities[row, best]:.1%}, true: {truth}"
        pixels = as_rgb(Path(file), self.pixel_range)
        cells = [(_smaller(pixels, EVIDENCE_SIDE), f"{Path(file).name}: {caption}")]
        return cells + ([(_smaller(evidence(model, pixels), EVIDENCE_SIDE), "evidence")] if model is not None else [])

    def _thumbnails(self) -> dict[int, str]:
        """data: URLs by row: mistakes and uncertain images, then some of each button in turn, wrong ones first."""
        right = self.predictions.right
        queues = [list(rows) for _, rows in sorted(self.lists.items(), key=lambda item: all(right[item[1]]))]
        order = dict.fromkeys([*self.mistakes, *self.uncertain])
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


def file_list(files: Sequence[str]) -> str:
    """Names of files, one a line, behind a summary."""
    lines = "\n".join(html.escape(file) for file in files)
    return f"<details><summary>{len(files):,} files</summary><pre>{lines}</pre></details>"
