"""The files of `keras-vit export`: written, audited, and compared with Keras."""

from pathlib import Path
from tempfile import TemporaryDirectory


def write_files(options, model, data, folder) -> dict[str, Path]:
    """Writes all formats; returns the files to check."""
    from keras_vit.export import FORMATS, write_onnx, write_saved_model, write_tflite, write_web_page

    files, names = {}, data.class_names
    if "saved-model" in options.formats:
        files["saved-model"] = write_saved_model(model, folder / "saved_model", names)
    if "onnx" in options.formats:
        files["onnx"] = write_onnx(model, folder / "model.onnx", names)
    formats = [name for name in options.formats if name in FORMATS]
    if "web" in options.formats:
        from keras_vit.export.tflite.graph_rewrite import available_signatures
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
            write_web_page(page_model, folder / "web", names or [str(i) for i in range(model.num_classes)])
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
    """Prints audits, and, if they passed, the parity table; returns the formats that failed, and why."""
    from keras_vit.classification import has_classes
    from keras_vit.export import FORMATS, check_parity, parity_table
    from keras_vit.export.audit import audit

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
    classifiers = {
        name: path for name, path in files.items() if "classify" in options.signatures or name not in FORMATS
    }
    if data.images is None or not has_classes(model) or not classifiers:
        print("\nNot compared with Keras: requires --dataset, a model with classes, and the signature classify.")
        return failures
    rows = check_parity(model, classifiers, data.images, data.labels)
    print(f"\n{len(data.images):,} images of {options.dataset} ({options.split})\n\n{parity_table(rows)}")
    for row in rows:
        drop = 100 * row.accuracy_drop
        if drop > options.max_accuracy_drop:
            above = f"has an accuracy drop of {drop:.2f} percentage points, above {options.max_accuracy_drop}"
            failures.append((row.name, f"{row.name} {above}"))
    return failures


def explain(options, failures) -> str:
    """What failed, and the options that save files."""
    failed = {name for name, _ in failures}
    others = [name for name in dict.fromkeys(options.formats) if name not in failed]
    advice = f", --formats {' '.join(others)} only those that passed" if others else ""
    reasons = "; ".join(text for _, text in failures)
    return f"{reasons}. Nothing was saved; --keep-going saves the files anyway{advice}."


def print_sensitivity(options, model, data) -> int:
    """Prints the parts of the model by the error of quantizing each; writes nothing."""
    from keras_vit.export.tflite.quantize import STATIC
    from keras_vit.export.tflite.sensitivity import analyze_sensitivity, sensitivity_table

    for name in [name for name in options.formats if name in STATIC]:
        print("\n" + sensitivity_table(name, analyze_sensitivity(model, name, data.calibration, data.images)))
    return 0
