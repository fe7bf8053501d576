"""`keras-vit export`: a model for servers, phones and web pages, checked before it is kept."""

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Literal

import tyro

from keras_vit.atomic_write import check_replaceable, new_folder

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
Target = Literal["cpu-xnnpack", "gpu", "nnapi-npu", "edgetpu", "litert2"]


@dataclass(frozen=True)
class Export:
    """Write a model in other formats, compare each with Keras on an evaluation split, and say what phones would do.

    A file that loses more than --max-loss points of accuracy, or has operations that would leave an accelerator of
    --target, fails the export, and nothing is kept, unless --keep-going. docs/export.md says which format is for what.

    Args:
        weights: File, folder or name: whatever `keras_vit.load` takes; or a .tflite file with --describe.
        output: Folder to write, which must not exist yet.
        formats: Of TFLite, or "saved-model", "onnx", "web": a page with a .tflite file of its own, in the first of
            "dynamic-int8" and "float16" that is asked for, else "dynamic-int8".
        dataset: For calibration and check: "digits", a name of TensorFlow Datasets, or "folder:/path" with
            /path/<split>/<class>/<image>. Formats "mixed-int8", "int8", "int16x8" need it.
        data_dir: Where prepared data sets are kept; by default TensorFlow Datasets' own place.
        calibration_split: Where the images that ranges are chosen by come from.
        calibration_images: Their number, drawn with the seed from the first 5,000, for formats that need them.
        split: Of the check.
        check_images: At most so many of it, the first ones.
        signatures: What a .tflite file has. MediaPipe takes files with one only.
        labels: File with a class name a line; by default those of the data set.
        license: Of the weights, in words, for the file's metadata.
        max_loss: Points of accuracy that a file may lose.
        target: Accelerators that must run every operation.
        keep_going: Keep files that lose more or leave the accelerator.
        debug_layers: Instead of writing files, list for each of the integer formats what each part of the model costs
            when it alone is quantized, the worst first.
        describe: Print what a .tflite file says of itself, and write nothing.
        seed: Of the choice of calibration images.
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
    signatures: tuple[Literal["classify", "embed", "attention"], ...] = ("classify",)
    labels: Path | None = None
    license: str = ""
    max_loss: float = 1.0
    target: tuple[Target, ...] = ()
    keep_going: bool = False
    debug_layers: bool = False
    describe: bool = False
    seed: int = 0

    def run(self) -> int:
        """Exports, prints the tables; 1 if a file fails."""
        if self.describe:
            from keras_vit.export import read_description

            print(read_description(self.weights))
            return 0
        self._check_request()
        from keras_vit import load
        from keras_vit_cli.export.data import ExportData

        model = load(self.weights)
        if "web" in self.formats and not model.num_classes:
            raise ValueError("A web page shows classes, and the model has no head: leave out web.")
        data = ExportData.read(self, model)
        if self.debug_layers:
            return self._debug(model, data)
        with new_folder(self.output) as folder:
            failures = self._check(model, folder, self._write(model, data, folder), data)
            if failures and not self.keep_going:
                raise ValueError("; ".join(failures) + ". Nothing was kept; --keep-going keeps it all the same.")
        print("\n".join(failures) or f"\nWritten to {self.output.absolute()}")
        return bool(failures)

    def _check_request(self):
        """Raises ValueError for what can be seen before a model is loaded and images are read."""
        from keras_vit.export.tflite.calibration import MIN_IMAGES
        from keras_vit.export.tflite.quantize import STATIC

        ranged = [name for name in self.formats if name in STATIC]
        if not self.formats:
            raise ValueError("Say what to write: --formats, such as float32 dynamic-int8.")
        if self.debug_layers and not (ranged and self.dataset):
            raise ValueError(f"--debug-layers needs --dataset, and --formats of {', '.join(STATIC)}.")
        if ranged and not self.dataset:
            raise ValueError(
                f"{', '.join(ranged)}: ranges of integers are chosen by images. Give --dataset, such as folder:/path "
                "with /path/train/<class>/<image> and /path/test/<class>/<image>; dynamic-int8 needs none."
            )
        if self.dataset and (self.check_images < 1 or (ranged and self.calibration_images < MIN_IMAGES)):
            raise ValueError(
                f"--check-images must be at least 1, --calibration-images {MIN_IMAGES}. "
                f"Received: {self.check_images} and {self.calibration_images}"
            )
        if not self.debug_layers:
            if self.output is None:
                raise ValueError("Say where to: --output FOLDER, which must not exist yet.")
            check_replaceable(self.output)

    def _write(self, model, data, folder) -> dict[str, Path]:
        """Writes all formats; returns those that can be checked."""
        from keras_vit.export import FORMATS, write_saved_model, write_tflite, write_web_demo

        files = {}
        if "saved-model" in self.formats:
            files["saved-model"] = write_saved_model(model, folder / "saved_model", data.labels)
        if "onnx" in self.formats:
            from keras_vit.export.onnx import write_onnx

            files["onnx"] = write_onnx(model, folder / "model.onnx", data.labels)
        kinds = [name for name in self.formats if name in FORMATS]
        words = {"labels": data.labels, "license": self.license}
        if "web" in self.formats:
            from keras_vit.export.tflite.device_form import signatures_of

            # The page also draws attention, which MediaPipe's files cannot have: a file of its own.
            both = [name for name in ("classify", "attention") if name in signatures_of(model)]
            kind = next((name for name in kinds if name in ("dynamic-int8", "float16")), "dynamic-int8")
            page = write_tflite(model, folder / "web_model", [kind], signatures=both, **words)
            write_web_demo(page[kind], folder / "web", data.labels or [str(i) for i in range(model.num_classes)])
            files["web"] = page[kind]
        if kinds:
            options = {"signatures": self.signatures, "seed": self.seed, "say": print}
            files |= write_tflite(model, folder, kinds, data.calibration, **options, **words)
        return files

    def _check(self, model, folder, files, data) -> list[str]:
        """Prints what was lost and what would leave accelerators; returns what fails."""
        from keras_vit.export import FORMATS, check_parity, parity_table
        from keras_vit.export.audit.findings import audit

        failures = []
        for name, path in files.items():
            if path.suffix == ".tflite" and self.target:
                found = audit(path, self.target)
                print("\n" + str(found).replace(f"{folder}/", ""))  # whose name is another in the end
                failures += [f"{name} would leave {target}" for target in self.target if found.fails(target)]
        classifiers = {
            name: path for name, path in files.items() if "classify" in self.signatures or name not in FORMATS
        }
        if data.pixels is None or not model.num_classes or not classifiers:
            print("\nNot compared with Keras: that needs --dataset, a model with a head, and the signature classify.")
            return failures
        rows = check_parity(model, classifiers, data.pixels, data.answers)
        print(f"\n{len(data.pixels):,} images of {self.dataset} ({self.split})\n\n{parity_table(rows)}")
        lost = [row for row in rows if 100 * row.lost > self.max_loss]
        return failures + [f"{row.name} loses {100 * row.lost:.2f} points, more than {self.max_loss}" for row in lost]

    def _debug(self, model, data) -> int:
        from keras_vit.export.tflite.quantize import STATIC
        from keras_vit.export.tflite.sensitivity import part_costs

        for name in [name for name in self.formats if name in STATIC]:
            print(f"\n{name}: one part in integers, the rest in float32\n")
            print("| part | logit cosine | agreement |\n|---|---|---|")
            for cost in part_costs(model, name, data.calibration, data.pixels, self.seed):
                print(f"| {cost.part} | {cost.cosine:.5f} | {cost.agreement:.2%} |")
        return 0
