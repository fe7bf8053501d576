"""`keras-vit export`: writes a model as SavedModel, ONNX, TFLite or web page, and checks the files."""

import shlex
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Literal

import tyro

from keras_vit_cli.export.files import explain, failed_checks, print_sensitivity, write_files
from keras_vit_cli.export.request_checks import check_head, check_request
from keras_vit_cli.output_folder import check_replaceable, new_folder
from keras_vit_cli.preprocessing_flags import AS_STATED, Preparation
from keras_vit_cli.process import without_native_logs

Format = Literal[
    "saved-model",
    "onnx",
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
    """Export a model, compare each file with Keras on an evaluation split, and audit it for accelerators.

    If a file has an accuracy drop above --max-accuracy-drop, or operations that an accelerator of --target does not
    support, the export fails and nothing is saved, unless --keep-going. docs/export.md compares the formats.

    Args:
        weights: File, folder or name that `keras_vit.load` accepts; with --describe a .tflite file.
        output: Folder to write; must not exist.
        formats: TFLite formats, "saved-model", "onnx", or "web": a page with a .tflite file of its own, in the first
            requested format of "dynamic-int8" and "float16", else "dynamic-int8".
        dataset: Dataset for calibration and parity check: "digits", a name of TensorFlow Datasets, or "folder:/path"
            with /path/<split>/<class>/<image>. Required by "mixed-int8", "int8" and "int16x8".
        data_dir: Folder of prepared datasets; default: that of TensorFlow Datasets.
        calibration_split: Split of the calibration images.
        calibration_images: Number of calibration images, sampled from the first 5,000 of the split.
        split: Split of the parity check.
        check_images: Largest number of images for the parity check, the first ones of the split.
        max_corrupt: Largest allowed fraction of images that cannot be decoded; they are named and do not count.
        signatures: Signatures of each .tflite file. MediaPipe supports files with one only.
        class_names: File with one class name per line; default: those of the dataset, without --dataset those of the
            model. Names of a dataset and of a run (its labels.txt) must be equal.
        license: License of the weights, for the metadata of .tflite files.
        max_accuracy_drop: Largest allowed accuracy drop in percentage points.
        target: Accelerators that must support every operation: "cpu-xnnpack", "gpu", "litert2", or the NPU of a chip,
            such as "npu:SM8750" (docs/npu.md).
        keep_going: Save the files even if a check fails.
        sensitivity: Write no files; for each integer format, list the parts of the model by the error that quantizing
            only this part causes, largest first, and propose what to do.
        keep_float: Parts that "mixed-int8", "int8" and "int16x8" leave in float32, as --sensitivity names them.
        describe: Write no files; print signatures and metadata of a .tflite file.
        seed: Seed of the sample of calibration images.
        preparation: How images are prepared, if it is not as the weights state; files with it, too.
    """

    weights: Annotated[str, tyro.conf.Positional, tyro.conf.arg(metavar="WEIGHTS")]
    output: Path | None = None
    formats: tuple[Format, ...] = ("float32", "dynamic-int8")
    dataset: str | None = None
    data_dir: str | None = None
    calibration_split: str = "train"
    calibration_images: int = 200
    split: str = "test"
    check_images: int = 1000
    max_corrupt: float = 0.01
    signatures: tuple[Literal["classify", "embed", "attention"], ...] = ("classify",)
    class_names: Path | None = None
    license: str = ""
    max_accuracy_drop: float = 1.0
    target: tuple[str, ...] = ()
    keep_going: bool = False
    sensitivity: bool = False
    keep_float: tuple[str, ...] = ()
    describe: bool = False
    seed: int = 0
    preparation: Preparation = AS_STATED

    def run(self) -> int:
        """Exports and prints the tables; returns 1 if a check fails."""
        if self.describe:
            from keras_vit.export import read_description

            print(read_description(self.weights))
            return 0
        output = None if self.sensitivity else self._checked_output()
        check_request(self)
        from keras_vit_cli.export.data import ExportData

        model = self.preparation.load(self.weights)
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
