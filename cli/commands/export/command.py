"""`keras-vit export` and `benchmark`: a model as SavedModel, ONNX, TFLite or web page; speed of .tflite files."""

import math
import shlex
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Annotated, Literal

import tyro

from keras_vit_cli.inputs import check_dataset, check_model
from keras_vit_cli.output_folder import check_replaceable, json_output, new_folder
from keras_vit_cli.preprocessing_flags import AS_SAVED, Loading
from keras_vit_cli.process import without_native_logs
from keras_vit_cli.words import DataDir, Group, Json, MaxCorrupt, Model, OptionalDataset, OptionalOutput, Split

Format = Literal[
    "saved-model",
    "onnx",
    "onnx-float16",
    "onnx-pixels",
    "web",
    "float32",
    "float16",
    "dynamic-int8",
    "int4-weights",
    "mixed-int8",
    "int8",
    "int16x8",
]


@dataclass(frozen=True)
class Export:
    """Export a model to other formats, and compare each file with Keras.

    --dataset has the images of the comparison and of the calibration that "mixed-int8", "int8" and "int16x8" require.
    --output is a folder, which must not exist. If a file has an accuracy drop above --max-accuracy-drop, or operations
    that an accelerator of --target does not support, the export fails and nothing is saved, unless --keep-going.
    docs/export.md compares the formats.

    Args:
        formats: Files of TFLite: "float32", "float16", "dynamic-int8", "int4-weights", "mixed-int8", "int8", "int16x8".
            "saved-model". "onnx", in half precision "onnx-float16", with uint8 pixels as input "onnx-pixels". "web": a
            page with a .tflite file of its own, in the first requested format of "dynamic-int8" and "float16", else
            "dynamic-int8".
        calibration_split: Split of the calibration images.
        calibration_images: Number of calibration images, sampled from the first 5,000 of the split.
        check_images: Largest number of images for the comparison with Keras, the first ones of the split.
        signatures: Signatures of each .tflite file. MediaPipe supports files with one only.
        default_signature: Signature of a SavedModel that servers run if a client names none, such as "serve_bytes" for
            files; default: "classify", or without classes "projection" or "features" (docs/saved_model.md).
        class_names: File with one class name per line; default: those of the model, or, if it has none, of the dataset.
            The classes of a dataset must be among those of a run (its labels.txt).
        license: License of the weights, for the metadata of .tflite files.
        max_accuracy_drop: Largest allowed accuracy drop in percentage points. Defaults to 1 or, if that is more, to two
            and a half of the images.
        target: Accelerators that must support every operation: "cpu-xnnpack", "gpu", "litert2", or the NPU of a chip,
            such as "npu:SM8750" (docs/npu.md).
        keep_going: Save the files even if a check fails.
        sensitivity: Write no files; for each integer format, list the parts of the model by the error that quantizing
            only this part causes, largest first, and propose what to do.
        keep_float: Parts that "mixed-int8", "int8" and "int16x8" leave in float32, as --sensitivity names them.
    """

    model: Model
    output: OptionalOutput = None
    formats: Annotated[tuple[Format, ...], tyro.conf.arg(metavar="FORMAT ...")] = ("float32", "dynamic-int8")
    dataset: OptionalDataset = None
    group: Group = None
    data_dir: DataDir = None
    calibration_split: str = "train"
    calibration_images: int = 200
    split: Split = "test"
    check_images: int = 1000
    max_corrupt: MaxCorrupt = 0.01
    signatures: tuple[Literal["classify", "embed", "attention"], ...] = ("classify",)
    default_signature: str | None = None
    class_names: Annotated[Path | None, tyro.conf.arg(metavar="FILE")] = None
    license: str = ""
    max_accuracy_drop: float | None = None
    target: tuple[str, ...] = ()
    keep_going: bool = False
    sensitivity: bool = False
    keep_float: Annotated[tuple[str, ...], tyro.conf.arg(metavar="PART ...")] = ()
    preparation: Loading = AS_SAVED

    def run(self) -> int:
        """Exports and prints the tables; returns 1 if a check fails."""
        output = None if self.sensitivity else self._checked_output()
        check_request(self)
        from keras_vit_cli.commands.export.files import (
            ExportData,
            explain,
            failed_checks,
            print_sensitivity,
            write_files,
        )

        model = self.preparation.load(self.model)
        check_head(self, model)
        data = ExportData.read(self, model)
        for note in data.notes:
            print(note)
        if output is None:
            with without_native_logs():
                return print_sensitivity(self, model, data)
        with new_folder(output) as folder:
            with without_native_logs():
                failures = failed_checks(self, model, folder, write_files(self, model, data, folder), data)
            if failures and not self.keep_going:
                raise ValueError(explain(self, failures))
        print("\n".join([text for _, text in failures] + [f"\nWritten to {output.absolute()}"]))
        if "web" in self.formats:
            page = output.absolute() / "web"
            print(f"{page / 'index.html'} is the page: python3 -m http.server --directory {shlex.quote(str(page))}")
        return bool(failures)

    def _checked_output(self) -> Path:
        if self.output is None:
            raise ValueError("No output folder. Pass --output FOLDER, which must not exist.")
        check_replaceable(self.output)
        return self.output


def check_request(options):
    """Raises ValueError or OSError for mistakes that are visible before the model and images are loaded."""
    instead = f"Pass what it was exported from; keras-vit describe {options.model} prints what it contains."
    check_model(options.model, instead)
    if options.dataset:
        check_dataset(options.dataset, converts=True)
    if not options.formats:
        raise ValueError("No formats. Pass --formats, such as float32 dynamic-int8.")
    from keras_vit.export.tflite.request import INT4, MIN_IMAGES, STATIC  # takes seconds, as all imports from here on

    calibrated = [name for name in options.formats if name in STATIC]
    if options.target:
        if all(name.startswith(("saved-model", "onnx")) for name in options.formats):
            raise ValueError("--target examines .tflite files. Add one to --formats, such as dynamic-int8.")
        from keras_vit.export.audit import check_targets

        check_targets(options.target)
    if options.default_signature and "saved-model" not in options.formats:
        raise ValueError("--default-signature is of a SavedModel. Add saved-model to --formats.")
    if options.keep_float and not calibrated:
        raise ValueError(f"--keep-float requires --formats among {', '.join(STATIC)}: others do not use it.")
    if options.sensitivity and not (calibrated and options.dataset):
        raise ValueError(f"--sensitivity requires --dataset, and --formats among {', '.join(STATIC)}.")
    if calibrated and not options.dataset:
        raise ValueError(
            f"{', '.join(calibrated)}: calibration requires images. Pass --dataset, such as folder:/path with "
            "/path/train/<class>/<image> and /path/test/<class>/<image>; dynamic-int8 requires none."
        )
    if options.max_accuracy_drop is not None and math.isnan(options.max_accuracy_drop):
        raise ValueError("--max-accuracy-drop must be a number of percentage points. Received: nan")
    uses_images = calibrated or INT4 in options.formats
    if options.dataset and (options.check_images < 1 or (uses_images and options.calibration_images < MIN_IMAGES)):
        raise ValueError(
            f"--check-images must be at least 1, --calibration-images {MIN_IMAGES}. "
            f"Received: {options.check_images} and {options.calibration_images}"
        )


def check_head(options, model):
    """Raises ValueError for formats that require classes, if the model has no head, or a projection."""
    from keras_vit.export import FORMATS
    from keras_vit.export.tflite.request import no_head
    from keras_vit.models.classification import check_no_projection, has_classes

    if has_classes(model):
        return
    is_classifier = "classify" in options.signatures and set(options.formats) & set(FORMATS)
    if "web" in options.formats or options.sensitivity or is_classifier:
        check_no_projection(model)
    if "web" in options.formats:
        raise ValueError("A web page shows classes, but the model has no head. Omit the format web.")
    if is_classifier:
        raise no_head(model, "--signatures embed")


@dataclass(frozen=True)
class Benchmark:
    """Measure latency and memory of .tflite files on this CPU.

    LiteRT runs them with XNNPACK. Each file runs in a separate process, in turns with the others. Results are for this
    machine's CPU, not for a phone.

    Args:
        files: Files of `keras-vit export`, or any others.
        num_threads: Threads of the interpreter.
        num_runs: Timed calls of each file.
    """

    files: Annotated[tuple[Path, ...], tyro.conf.Positional, tyro.conf.arg(metavar="FILES")]
    num_threads: int = 2
    num_runs: int = 50
    json: Json = False

    def run(self):
        """Measures and prints a table."""
        if not self.files:
            raise ValueError("No files. Pass at least one .tflite file.")
        from keras_vit.export.benchmark import compare, table

        with json_output(self.json) as show:
            results = compare(self.files, self.num_threads, self.num_runs)
            show([asdict(result) for result in results], lambda: print(table(results)))
