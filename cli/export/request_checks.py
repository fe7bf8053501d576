"""What is wrong with the options of `keras-vit export`, before long work starts."""

import math

from keras_vit_cli.evaluated_inputs import check_dataset, check_model


def check_request(options):
    """Raises ValueError or OSError for mistakes that are visible before the model and images are loaded."""
    check_model(options.weights, "Pass the weights that it was exported from, or --describe to print what it contains.")
    if options.dataset:
        check_dataset(options.dataset)
    if not options.formats:
        raise ValueError("No formats. Pass --formats, such as float32 dynamic-int8.")
    if not 0 <= options.max_corrupt <= 1:
        raise ValueError(f"--max-corrupt must be in [0, 1]. Received: {options.max_corrupt}")
    if not math.isfinite(options.max_accuracy_drop):
        raise ValueError(f"--max-accuracy-drop must be finite. Received: {options.max_accuracy_drop}")
    from keras_vit.export.tflite.calibration import MIN_IMAGES  # takes seconds, as all imports from here on
    from keras_vit.export.tflite.quantize import INT4, STATIC

    calibrated = [name for name in options.formats if name in STATIC]
    if options.target:
        if not set(options.formats) - {"saved-model", "onnx"}:
            raise ValueError("--target examines .tflite files. Add one to --formats, such as dynamic-int8.")
        from keras_vit.export.audit import check_targets

        check_targets(options.target)
    if options.keep_float and not calibrated:
        raise ValueError(f"--keep-float requires --formats among {', '.join(STATIC)}: others do not use it.")
    if options.sensitivity:
        _check_sensitivity(options, calibrated)
    if calibrated and not options.dataset:
        raise ValueError(
            f"{', '.join(calibrated)}: calibration requires images. Pass --dataset, such as folder:/path with "
            "/path/train/<class>/<image> and /path/test/<class>/<image>; dynamic-int8 requires none."
        )
    uses_images = calibrated or INT4 in options.formats
    if options.dataset and (options.check_images < 1 or (uses_images and options.calibration_images < MIN_IMAGES)):
        raise ValueError(
            f"--check-images must be at least 1, --calibration-images {MIN_IMAGES}. "
            f"Received: {options.check_images} and {options.calibration_images}"
        )


def _check_sensitivity(options, calibrated):
    from keras_vit.export.tflite.quantize import STATIC

    if not (calibrated and options.dataset):
        raise ValueError(f"--sensitivity requires --dataset, and --formats among {', '.join(STATIC)}.")
    given = {
        "--output": options.output,
        "--keep-float": options.keep_float,
        "--target": options.target,
        "--class-names": options.class_names,
        "--license": options.license,
        "--signatures": options.signatures != ("classify",),
    }
    if unused := [option for option, value in given.items() if value]:
        raise ValueError(f"--sensitivity writes no files and quantizes all parts: omit {', '.join(unused)}.")


def check_head(options, model):
    """Raises ValueError for formats that require classes, if the model has no head, or a projection."""
    from keras_vit.classification import check_no_projection, has_classes
    from keras_vit.export import FORMATS

    if has_classes(model):
        return
    is_classifier = "classify" in options.signatures and set(options.formats) & set(FORMATS)
    if "web" in options.formats or options.sensitivity or is_classifier:
        check_no_projection(model)
    if "web" in options.formats:
        raise ValueError("A web page shows classes, but the model has no head. Omit the format web.")
    if is_classifier:
        raise ValueError(f"{model.name} has no head to classify with. Pass --signatures embed.")
