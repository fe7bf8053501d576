"""The files of `keras-vit export`: written, audited, and compared with Keras. n images, H W pixels of the model."""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory

import numpy as np

from keras_vit.class_names import read_class_names
from keras_vit.models.classification import has_classes, known_names
from keras_vit_cli.conversion import converted_images

# Calibration images are sampled from the first ones only: reading all of a large dataset would take too long.
CALIBRATION_POOL = 5_000


@dataclass(frozen=True)
class ExportData:
    """Images in [0, 255] of the model's size, float32; None without a dataset.

    Args:
        calibration: (n, H, W, 3), if a format requires calibration, or "int4-weights" is more accurate with it.
        images, labels: Images of the parity check, (n, H, W, 3), and integer labels (n,).
        class_names: One name per class: those of the file in the options, else of the dataset, else of the model. None
            if there are none, or for a model without classes, unless a file was given.
        notes: What to know about the calibration images, one sentence each.
    """

    calibration: np.ndarray | None = None
    images: np.ndarray | None = None
    labels: np.ndarray | None = None
    class_names: Sequence[str] | None = None
    notes: tuple[str, ...] = ()

    @classmethod
    def read(cls, options, model) -> "ExportData":
        """Reads the data that the options of an `Export` request.

        Raises:
            ValueError: Class names, classes or splits do not match the model, or there are too few calibration images.
        """
        names = read_class_names(options.class_names) if options.class_names else None
        if options.dataset is None:
            return cls(class_names=names or known_names(model))
        from keras_vit.export.tflite.request import INT4, MIN_IMAGES, STATIC
        from keras_vit.recipes.data import count_examples, open_dataset
        from keras_vit.recipes.data.model_classes import unlabeled, with_model_classes
        from keras_vit.recipes.recipe import Data

        data = Data(
            dataset=options.dataset,
            group=options.group,
            data_dir=options.data_dir,
            max_corrupt=options.max_corrupt,
            converted=converted_images(options.model, options.dataset),
        )
        dataset = open_dataset(data)
        if has_classes(model):
            dataset = with_model_classes(dataset, model, options.model)
        read = partial(_read_images, dataset, preprocessing=model.preprocessing, max_corrupt=options.max_corrupt)
        images, labels = read(options.split, options.check_images)
        if has_classes(model) and labels.min() < 0:
            raise unlabeled(dataset, options.split)
        calibration, split = None, options.calibration_split
        notes: tuple[str, ...] = ()
        static = [name for name in options.formats if name in STATIC]
        if static or (INT4 in options.formats and len(options.signatures) == 1):
            total = min(CALIBRATION_POOL, count_examples(dataset, split))
            indices = np.random.default_rng(0).permutation(total)[: options.calibration_images]
            calibration, _ = read(split, len(indices), indices=indices)
            notes = _calibration_notes(dataset, options, indices)
            if len(calibration) < MIN_IMAGES:
                few = f"{split!r} has {len(calibration)} images, fewer than {MIN_IMAGES}"
                if static:
                    raise ValueError(f"{', '.join(static)}: {few} for calibration. Pass another --calibration-split.")
                calibration, notes = None, (f"Note: {INT4} is not calibrated: {few}.",)
        return cls(calibration, images, labels, names or (dataset.class_names if has_classes(model) else None), notes)


def _calibration_notes(dataset, options, indices) -> tuple[str, ...]:
    """Whether there are fewer calibration images than requested, and whether they are also those of the check."""
    notes = []
    if len(indices) < options.calibration_images:
        notes.append(
            f"Note: {len(indices):,} calibration images in place of --calibration-images "
            f"{options.calibration_images:,}: {options.calibration_split!r} has no more among its first "
            f"{CALIBRATION_POOL:,}."
        )
    checked = _positions(dataset, options.split, range(options.check_images))
    if shared := len(checked & _positions(dataset, options.calibration_split, indices)):
        notes.append(
            f"Note: {shared:,} of the {len(indices):,} calibration images are also compared with Keras, so the "
            "accuracy drop is too optimistic. Pass another --split or --calibration-split."
        )
    return tuple(notes)


def _positions(dataset, split, indices) -> set[tuple[str, int]]:
    """The images at the indices of a split, such as "train[10:]", as (whole split, position in it)."""
    from keras_vit.recipes.data.image_dataset import split_ranges

    ranges = split_ranges(dataset.splits, split, dataset.name, dataset.cuts)
    wanted = set(indices)
    places = ((name, place) for name, start, end in ranges for place in range(start, end))
    return {place for index, place in zip(range(max(wanted) + 1), places) if index in wanted}


def _read_images(dataset, split, count, preprocessing, max_corrupt, indices=None):
    """The first images of a split, or those at the indices, and their labels."""
    from keras_vit.recipes.data import decoded_images
    from keras_vit.recipes.data.image_dataset import decoded_for

    images, labels, dataset = [], [], decoded_for(dataset, preprocessing)
    indices = np.arange(count) if indices is None else indices
    for batch, batch_labels in decoded_images(dataset, split, max(1, min(64, count)), max_corrupt, indices):
        images += [*np.asarray(preprocessing.pixels(list(batch)))]
        labels += [*batch_labels]
    return np.stack(images), np.array(labels)


def write_files(options, model, data, folder) -> dict[str, Path]:
    """Writes all formats; returns the files to check."""
    from keras_vit.export import FORMATS, write_onnx, write_saved_model, write_tflite, write_web_page

    files, names = {}, data.class_names
    if "saved-model" in options.formats:
        signature = options.default_signature
        files["saved-model"] = write_saved_model(model, folder / "saved_model", names, default_signature=signature)
    for name in [name for name in options.formats if name.startswith("onnx")]:
        file = folder / f"model{name.removeprefix('onnx')}.onnx"
        dtype = "float16" if name == "onnx-float16" else "float32"
        files[name] = write_onnx(model, file, names, dtype=dtype, pixels=name == "onnx-pixels")
    formats = [name for name in options.formats if name in FORMATS]
    if "web" in options.formats:
        from keras_vit.export.tflite.request import available_signatures
        from keras_vit.export.web.page import MODEL_FILE

        # A separate file: the page also shows attention, and MediaPipe's files have one signature only.
        signatures = [name for name in ("classify", "attention") if name in available_signatures(model)]
        web_format = next((name for name in formats if name in ("dynamic-int8", "float16")), "dynamic-int8")
        with TemporaryDirectory(dir=folder) as temporary:
            page_model = write_tflite(
                model,
                Path(temporary) / "page",
                [web_format],
                signatures=signatures,
                class_names=names,
                license=options.license,
            )[web_format]
            write_web_page(page_model, folder / "web")
        files["web"] = folder / "web" / MODEL_FILE
    if formats:
        files |= write_tflite(
            model,
            folder,
            formats,
            data.calibration,
            signatures=options.signatures,
            class_names=names,
            license=options.license,
            keep_float=options.keep_float,
            log=print,
        )
    return files


def failed_checks(options, model, folder, files, data) -> list[tuple[str, str]]:
    """Prints audits, and, if they passed, the parity tables; returns the formats that failed, and why."""
    from keras_vit.export import check_parity, parity_table
    from keras_vit.export.audit import audit
    from keras_vit.export.exported.parity import check_embeddings, embedding_table

    failures = []
    for name, path in files.items():
        if path.suffix == ".tflite" and options.target:
            report = audit(path, options.target)
            print("\n" + str(report).replace(f"{folder}/", ""))  # a temporary folder
            failures += [
                (name, f"{target} does not support {name}") for target in options.target if report.fails(target)
            ]
    if failures and not options.keep_going:
        return failures  # nothing is saved, so nothing is compared
    images = data.images
    classified, embedded = _compared(options, model, files)
    if images is None or not (classified or embedded):
        missing = "--dataset" if images is None else "--signatures classify or embed"
        print(f"\nNot compared with Keras: requires {missing}.")
        return failures
    print(f"\n{len(images):,} images of {options.dataset} ({options.split})")
    if embedded:
        print(f"\n{embedding_table(check_embeddings(model, embedded, images))}")
    if not classified:
        return failures
    rows = check_parity(model, classified, images, data.labels)
    print(f"\n{parity_table(rows)}")
    limit = options.max_accuracy_drop
    if limit is None:
        limit = max(1.0, 250 / len(images))  # two images more or less are no sign of a defect
    for row in rows:
        drop = 100 * row.accuracy_drop
        if drop > limit:
            above = f"has an accuracy drop of {drop:.2f} percentage points, above {limit:.3g}"
            failures.append((row.name, f"{row.name} {above}"))
    return failures


def _compared(options, model, files) -> tuple[dict[str, Path], dict[str, Path]]:
    """The files whose classes, and those whose embeddings are compared."""
    from keras_vit.export import FORMATS

    def having(signature):  # which files of other formats always have
        return {name: path for name, path in files.items() if signature in options.signatures or name not in FORMATS}

    classified = having("classify") if has_classes(model) else {}
    return classified, {name: path for name, path in having("embed").items() if name not in classified}


def explain(options, failures) -> str:
    """What failed, and the options that save files."""
    failed = {name for name, _ in failures}
    others = [name for name in dict.fromkeys(options.formats) if name not in failed]
    advice = f", --formats {' '.join(others)} only the others" if others else ""
    reasons = "; ".join(text for _, text in failures)
    return f"{reasons}. Nothing was saved; --keep-going saves the files anyway{advice}."


def print_sensitivity(options, model, data) -> int:
    """Prints the parts of the model by the error of quantizing each; writes nothing."""
    from keras_vit.export.exported.sensitivity import analyze_sensitivity, sensitivity_table
    from keras_vit.export.tflite.request import STATIC

    for name in [name for name in options.formats if name in STATIC]:
        print("\n" + sensitivity_table(name, analyze_sensitivity(model, name, data.calibration, data.images)))
    return 0
