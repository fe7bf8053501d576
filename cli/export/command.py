"""`keras-vit export`: writes a model as SavedModel, ONNX, TFLite or web page, and checks the files."""

import math
import shlex
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Annotated, Literal

import tyro

from keras_vit_cli.evaluated_inputs import check_dataset, check_model
from keras_vit_cli.output_folder import check_replaceable, new_folder
from keras_vit_cli.preprocessing_flags import AS_STATED, Preparation
from keras_vit_cli.process.native_logs import without_native_logs

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
        target: Accelerators that must support every operation: "cpu-xnnpack", "gpu", "litert2", "edgetpu", "nnapi-npu",
            or the NPU of a chip, such as "npu:SM8750" (docs/npu.md).
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
        self._check_request()
        output = None if self.sensitivity else self._checked_output()
        from keras_vit_cli.export.data import ExportData

        model = self.preparation.load(self.weights)
        self._check_head(model)
        data = ExportData.read(self, model)
        for note in data.notes:
            print(note)
        if output is None:
            with without_native_logs():
                return self._print_sensitivity(model, data)
        with new_folder(output) as folder:
            with without_native_logs():
                failures = self._check(model, folder, self._write(model, data, folder), data)
            if failures and not self.keep_going:
                raise ValueError(self._explain(failures))
        print("\n".join([text for _, text in failures] + [f"\nWritten to {output.absolute()}"]))
        if "web" in self.formats:
            page = output.absolute() / "web"
            print(f"{page / 'index.html'} is the page: python3 -m http.server --directory {shlex.quote(str(page))}")
        return bool(failures)

    def _check_request(self):
        """Raises ValueError or OSError for mistakes that are visible before the model and images are loaded."""
        check_model(
            self.weights, "Pass the weights that it was exported from, or --describe to print what it contains."
        )
        if self.dataset:
            check_dataset(self.dataset)
        from keras_vit.export.tflite.calibration import MIN_IMAGES
        from keras_vit.export.tflite.quantize import INT4, STATIC

        calibrated = [name for name in self.formats if name in STATIC]
        if not 0 <= self.max_corrupt <= 1:
            raise ValueError(f"--max-corrupt must be in [0, 1]. Received: {self.max_corrupt}")
        if self.target:
            if not set(self.formats) - {"saved-model", "onnx"}:
                raise ValueError("--target examines .tflite files. Add one to --formats, such as dynamic-int8.")
            from keras_vit.export.audit.findings import check_targets

            check_targets(self.target)
        if not self.formats:
            raise ValueError("No formats. Pass --formats, such as float32 dynamic-int8.")
        if not math.isfinite(self.max_accuracy_drop):
            raise ValueError(f"--max-accuracy-drop must be finite. Received: {self.max_accuracy_drop}")
        if self.keep_float and not calibrated:
            raise ValueError(f"--keep-float requires --formats among {', '.join(STATIC)}: others do not use it.")
        if self.sensitivity:
            self._check_sensitivity(calibrated)
        if calibrated and not self.dataset:
            raise ValueError(
                f"{', '.join(calibrated)}: calibration requires images. Pass --dataset, such as folder:/path with "
                "/path/train/<class>/<image> and /path/test/<class>/<image>; dynamic-int8 requires none."
            )
        uses_images = calibrated or INT4 in self.formats
        if self.dataset and (self.check_images < 1 or (uses_images and self.calibration_images < MIN_IMAGES)):
            raise ValueError(
                f"--check-images must be at least 1, --calibration-images {MIN_IMAGES}. "
                f"Received: {self.check_images} and {self.calibration_images}"
            )

    def _check_sensitivity(self, calibrated):
        from keras_vit.export.tflite.quantize import STATIC

        if not (calibrated and self.dataset):
            raise ValueError(f"--sensitivity requires --dataset, and --formats among {', '.join(STATIC)}.")
        given = {
            "--output": self.output,
            "--keep-float": self.keep_float,
            "--target": self.target,
            "--class-names": self.class_names,
            "--license": self.license,
            "--signatures": self.signatures != ("classify",),
        }
        if unused := [option for option, value in given.items() if value]:
            raise ValueError(f"--sensitivity writes no files and quantizes all parts: omit {', '.join(unused)}.")

    def _check_head(self, model):
        """Raises ValueError for formats that require classes, if the model has no head, or a projection."""
        from keras_vit.classification import check_no_projection, has_classes
        from keras_vit.export import FORMATS

        if has_classes(model):
            return
        is_classifier = "classify" in self.signatures and set(self.formats) & set(FORMATS)
        if "web" in self.formats or self.sensitivity or is_classifier:
            check_no_projection(model)
        if "web" in self.formats:
            raise ValueError("A web page shows classes, but the model has no head. Omit the format web.")
        if is_classifier:
            raise ValueError(f"{model.name} has no head to classify with. Pass --signatures embed.")

    def _checked_output(self) -> Path:
        if self.output is None:
            raise ValueError("No output folder. Pass --output FOLDER, which must not exist.")
        check_replaceable(self.output)
        return self.output

    def _write(self, model, data, folder) -> dict[str, Path]:
        """Writes all formats; returns the files to check."""
        from keras_vit.export import FORMATS, write_onnx, write_saved_model, write_tflite, write_web_page

        files, names = {}, data.class_names
        if "saved-model" in self.formats:
            files["saved-model"] = write_saved_model(model, folder / "saved_model", names)
        if "onnx" in self.formats:
            files["onnx"] = write_onnx(model, folder / "model.onnx", names)
        formats = [name for name in self.formats if name in FORMATS]
        if "web" in self.formats:
            from keras_vit.export.tflite.signatures import available_signatures
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
                    license=self.license,
                )[web_format]
                write_web_page(page_model, folder / "web", names or [str(i) for i in range(model.num_classes)])
            files["web"] = folder / "web" / MODEL_FILE
        if formats:
            files |= write_tflite(
                model,
                folder,
                formats,
                data.calibration,
                signatures=self.signatures,
                class_names=names,
                license=self.license,
                keep_float=self.keep_float,
                log=print,
            )
        return files

    def _check(self, model, folder, files, data) -> list[tuple[str, str]]:
        """Prints audits and parity table; returns the formats that failed, and why."""
        from keras_vit.classification import has_classes
        from keras_vit.export import FORMATS, check_parity, parity_table
        from keras_vit.export.audit import audit

        failures = []
        for name, path in files.items():
            if path.suffix == ".tflite" and self.target:
                found = audit(path, self.target)
                print("\n" + str(found).replace(f"{folder}/", ""))  # a temporary folder
                failures += [
                    (name, f"{target} does not support {name}") for target in self.target if found.fails(target)
                ]
        classifiers = {
            name: path for name, path in files.items() if "classify" in self.signatures or name not in FORMATS
        }
        if data.images is None or not has_classes(model) or not classifiers:
            print("\nNot compared with Keras: requires --dataset, a model with classes, and the signature classify.")
            return failures
        rows = check_parity(model, classifiers, data.images, data.labels)
        print(f"\n{len(data.images):,} images of {self.dataset} ({self.split})\n\n{parity_table(rows)}")
        for row in rows:
            drop = 100 * row.accuracy_drop
            if drop > self.max_accuracy_drop:
                above = f"has an accuracy drop of {drop:.2f} percentage points, above {self.max_accuracy_drop}"
                failures.append((row.name, f"{row.name} {above}"))
        return failures

    def _explain(self, failures) -> str:
        """What failed, and the options that save files."""
        failed = {name for name, _ in failures}
        others = [name for name in dict.fromkeys(self.formats) if name not in failed]
        advice = f", --formats {' '.join(others)} only those that passed" if others else ""
        reasons = "; ".join(text for _, text in failures)
        return f"{reasons}. Nothing was saved; --keep-going saves the files anyway{advice}."

    def _print_sensitivity(self, model, data) -> int:
        from keras_vit.export.tflite.quantize import STATIC
        from keras_vit.export.tflite.sensitivity import analyze_sensitivity, sensitivity_table

        for name in [name for name in self.formats if name in STATIC]:
            print("\n" + sensitivity_table(name, analyze_sensitivity(model, name, data.calibration, data.images)))
        return 0
