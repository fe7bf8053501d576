"""`keras-vit report`: an HTML page on the predictions of a classifier."""

import os
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import tyro

from keras_vit.weights.files import MODEL
from keras_vit_cli.inputs import check_model
from keras_vit_cli.words import MODEL as MODEL_HELP
from keras_vit_cli.words import OptionalOutput

TABLE, REPORT = "predictions.csv", "report.html"


@dataclass(frozen=True)
class Report:
    """Write an HTML page on the predictions of a classifier.

    PREDICTIONS is the table of `keras-vit evaluate --predictions` or of a run: the page is made from it alone. It works
    offline, and shows accuracy with its interval, the confusion matrix, whose numbers open their images, metrics of
    each class, reliability, thresholds, and the most confident mistakes. Images are shown whose files are still there,
    relative to the current folder. In the folder of a run, its log.csv adds the curves of the training, its model.keras
    the patches that speak for each mistake; elsewhere --model does. --output is the file, which is replaced, or a
    folder for report.html, by default that of the table.

    Args:
        predictions: CSV file.
        compare: The table of another model on the same images: prints and shows the difference, with its interval and
            McNemar's exact test.
    """

    predictions: Annotated[Path, tyro.conf.Positional, tyro.conf.arg(metavar="PREDICTIONS")]
    compare: Annotated[Path | None, tyro.conf.arg(metavar="FILE")] = None
    model: Annotated[str | None, MODEL_HELP] = None
    output: OptionalOutput = None

    def run(self):
        """Reads the tables, and writes the page."""
        output = self.output or self.predictions.parent
        output = output / REPORT if output.is_dir() else output
        check_output(output)
        if self.model:
            check_model(self.model, "Evidence requires the Keras model.")
        from keras_vit.recipes.evaluation.predictions import compare_predictions, read_predictions
        from keras_vit.recipes.runs.logs import LOG, read_log
        from keras_vit_cli.commands.report.report import write_report
        from keras_vit_cli.commands.report.sections import describe_comparison

        predictions, comparison = read_predictions(self.predictions), None
        if self.compare:
            comparison = compare_predictions(predictions, read_predictions(self.compare))
            print(f"first: {self.predictions}, second: {self.compare}\n{describe_comparison(comparison)}")
        names = (str(self.predictions), str(self.compare))
        write_report(
            output,
            f"Predictions of {self.predictions}",
            predictions,
            log=read_log(os.path.join(self.predictions.parent, LOG)),
            model=self._open_model(predictions),
            comparison=comparison and (comparison, names),
        )
        print_written(output)

    def _open_model(self, predictions):
        beside = self.predictions.parent / MODEL
        weights = self.model or (str(beside) if beside.is_file() else None)
        if weights is None:
            return None
        import keras_vit

        model = keras_vit.load(weights)
        if self.model is None and list(model.class_names or ()) != predictions.class_names:
            return None  # the table is of another model
        return model


def check_output(path: Path):
    """Raises ValueError unless a report can be written there."""
    if path.suffix.lower() not in (".html", ".htm"):
        raise ValueError(f"A report is an .html file. Received: {path}")
    if not path.absolute().parent.is_dir() or path.is_dir():
        raise ValueError(f"{path.absolute()} cannot be written: there is no folder {path.absolute().parent}.")


def print_written(path: Path):
    """Prints where the report is."""
    print(f"Open {path.absolute()}, {path.stat().st_size / 1e6:.1f} MB")
