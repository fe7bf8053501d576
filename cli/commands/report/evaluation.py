"""The table of predictions and the report of a run, which `finetune` and `train` write beside its model."""

import sys
from collections.abc import Callable, Sequence
from pathlib import Path

from keras_vit.weights.files import METRICS, MODEL
from keras_vit_cli.commands.report.command import REPORT, TABLE, print_written

MOST_IMAGES = 5_000  # of a test set that is evaluated once more, image by image, without being asked


def report_run(recipe, notes: Callable[[], Sequence[str]] = tuple, exported: Path | None = None):
    """Writes predictions.csv and report.html into the local folder of a finished run, unless they are there.

    An error is printed, since the run is complete without them.

    Args:
        notes: Returns warnings of the report, after the table of predictions was written.
        exported: A file of the model, which is compared with it.
    """
    from keras_vit.recipes.data import count_examples, open_dataset

    folder, data = Path(recipe.run.folder), recipe.data
    report, metrics = folder / REPORT, folder / METRICS
    if report.exists() and report.stat().st_mtime >= metrics.stat().st_mtime:
        return
    try:
        dataset = open_dataset(data)
        count = count_examples(dataset, data.test_split)
        if count > MOST_IMAGES:
            print(f"No report of {count:,} test images: keras-vit evaluate --report FILE.html writes one.")
            return
        _write(recipe, folder, dataset, notes, exported)
    except (ValueError, OSError) as error:
        print(f"The report was not written: {error} The run is complete.", file=sys.stderr)


def predict(classifier, data, table: Path, dataset):
    """Writes the table of a classifier's predictions of a recipe's test images, and returns them."""
    from keras_vit.recipes.evaluation.classification import evaluate_classifier
    from keras_vit.recipes.evaluation.predictions import read_predictions

    options = {"batch_size": data.batch_size, "max_corrupt": data.max_corrupt, "predictions": table}
    evaluate_classifier(classifier, dataset, data.test_split, **options)
    return read_predictions(table)


def _write(recipe, folder, dataset, notes, exported):
    import keras_vit
    from keras_vit.recipes.data.corrupt_images import skipped_images
    from keras_vit.recipes.evaluation.predictions import compare_predictions
    from keras_vit_cli.commands.report.report import write_report

    model, data, comparison = keras_vit.load(folder / MODEL), recipe.data, None
    predictions = predict(model, data, folder / TABLE, dataset)
    if exported:
        from keras_vit.export.exported.opening import open_exported

        result = compare_predictions(
            predictions, predict(open_exported(exported), data, exported.parent / TABLE, dataset)
        )
        comparison = result, (MODEL, exported.name)
    write_report(
        folder / REPORT,
        f"{folder} on {data.dataset} ({data.test_split})",
        predictions,
        notes=notes(),
        skipped=skipped_images(dataset.name),
        run=folder,
        model=model,
        pixel_range=model.preprocessing.pixel_range,
        comparison=comparison,
    )
    print_written(folder / REPORT)
