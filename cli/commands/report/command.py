"""`keras-vit report`: an HTML page on the predictions of a classifier."""

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import tyro

from keras_vit.weights.files import MODEL
from keras_vit_cli.inputs import check_model
from keras_vit_cli.words import MODEL as MODEL_HELP
from keras_vit_cli.words import OptionalOutput

TABLE, REPORT = "predictions.csv", "report.html"
FOLDS = "folds"  # in the folder of a run: those of its folds, whose predictions are in its table
OF_FOLDS = (
    "Each image was predicted by one of the models of the folds, which was trained without it. The model in the folder "
    "of the run was trained on all images."
)


@dataclass(frozen=True)
class Report:
    """Write an HTML page on the predictions of a classifier.

    PREDICTIONS is the table of `keras-vit evaluate --predictions`, or the folder of a run: the page is made from it
    alone. It works offline, and shows accuracy with its interval, the confusion matrix, whose numbers open their
    images, metrics of each class, reliability, thresholds, and the most confident mistakes. Images are shown whose
    files are still there, relative to the current folder. In the folder of a run, its log.csv adds the curves of the
    training, its model.keras the patches that speak for each mistake; elsewhere --model does. --output is the file,
    which is replaced, or a folder for report.html, by default that of the table.

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
        table = _table(self.predictions)
        output = self.output or table.parent
        output = output / REPORT if output.is_dir() else output
        check_output(output)
        if self.model:
            check_model(self.model, "Evidence requires the Keras model.")
        from keras_vit.recipes.evaluation.predictions import compare_predictions, read_predictions
        from keras_vit_cli.commands.report.report import write_report
        from keras_vit_cli.commands.report.sections import describe_comparison

        other = self.compare and _table(self.compare)
        predictions, comparison = read_predictions(table), None
        if other:
            comparison = compare_predictions(predictions, read_predictions(other))
            print(f"first: {table}, second: {other}\n{describe_comparison(comparison)}")
        names, model = (str(table), str(other)), self._open_model(table, predictions)
        write_report(
            output,
            f"Predictions of {table}",
            predictions,
            notes=[OF_FOLDS] if _is_of_folds(table) else [],
            run=table.parent,
            model=model,
            pixel_range=_pixel_range(model, table),
            comparison=comparison and (comparison, names),
        )
        print_written(output)

    def _open_model(self, table, predictions):
        beside = table.parent / MODEL
        weights = self.model or (str(beside) if beside.is_file() and not _is_of_folds(table) else None)
        if weights is None:
            return None
        import keras_vit
        from keras_vit.messages import first_names
        from keras_vit.models.classification import output_names

        model = keras_vit.load(weights)
        if list(output_names(model)) == predictions.class_names:
            return model
        if self.model is None:
            return None  # the table is of another model
        raise ValueError(
            f"--model {self.model} has other classes than the table: {first_names(output_names(model))} there, "
            f"{first_names(predictions.class_names)} here."
        )


def _is_of_folds(table: Path) -> bool:
    return (table.parent / FOLDS).is_dir()


def _pixel_range(model, table: Path) -> tuple[int, int] | None:
    """That of the model, or of the run of folds whose table it is."""
    if model is not None:
        return model.preprocessing.pixel_range
    from keras_vit.recipes.recipe.file import read_run

    return read_run(table.parent).data.pixel_range if _is_of_folds(table) else None


def _table(path: Path) -> Path:
    """The table of predictions at a path, which may be the folder of a run; FileNotFoundError without."""
    table = path / TABLE if path.is_dir() else path
    if not table.is_file():
        raise FileNotFoundError(f"There is no table of predictions {table.absolute()}.")
    return table


def check_output(path: Path):
    """Raises ValueError unless a report can be written there."""
    if path.suffix.lower() not in (".html", ".htm"):
        raise ValueError(f"A report is an .html file. Received: {path}")
    if not path.absolute().parent.is_dir() or path.is_dir():
        raise ValueError(f"{path.absolute()} cannot be written: there is no folder {path.absolute().parent}.")


def print_written(path: Path):
    """Prints where the report is."""
    print(f"Open {path.absolute()}, {path.stat().st_size / 1e6:.1f} MB")
