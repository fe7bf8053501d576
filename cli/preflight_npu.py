"""`keras-vit preflight MODEL.tflite --npu CHIP`: compiles files for the NPUs of phones, without a phone."""

import json
import tempfile
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Annotated

import tyro

from keras_vit_cli.output_folder import check_json, create_folder
from keras_vit_cli.preflight import show_progress


@dataclass(frozen=True)
class PreflightNpu:
    """Compile .tflite files for the NPUs of phones with the vendors' own compilers, without a phone.

    Prints how many operations the NPU runs, what is left to the CPU and why, and the memory traffic of an image. The
    exit status is 1 if an NPU does not run every operation. docs/npu.md explains the report.

    Args:
        files: Files of `keras-vit export`, or any other .tflite files.
        npu: Chips, such as SM8750. Defaults to five Snapdragon chips, and to those of every other vendor whose package
            for LiteRT is installed.
        simulate: Folder of images. Also run the compiled files on Qualcomm's simulator, some seconds per image, and
            compare them with LiteRT on this CPU; for files of `keras-vit export` that a Snapdragon's NPU runs whole.
        output: Folder for the compiled files, MODEL-CHIP.tflite. By default they are not saved.
        json: Write all figures to this file.
    """

    files: Annotated[tuple[Path, ...], tyro.conf.Positional, tyro.conf.arg(metavar="FILES")]
    npu: tuple[str, ...] = ()
    simulate: Path | None = None
    output: Path | None = None
    json: Path | None = None

    def run(self) -> int:
        """Compiles, prints the reports, and returns the exit status."""
        from keras_vit.atomic_write import write_file
        from keras_vit.export.npu import default_chips, find_chip

        self._check_options()
        chips = list(dict.fromkeys(find_chip(name) for name in self.npu)) or default_chips()
        self._check_files(chips)
        images = self._images()
        if self.output:
            create_folder(self.output)
        with tempfile.TemporaryDirectory(prefix="keras-vit-npu-") as temporary:
            results = [
                self._examine(file, chip, Path(temporary), images.get(file))
                for file in dict.fromkeys(self.files)
                for chip in chips
            ]
        show_progress("")
        _print(results, self.simulate is not None)
        if self.json:
            entries = [report.as_dict() | {"simulation": found and asdict(found)} for report, found in results]
            write_file(self.json, json.dumps(entries, indent=2) + "\n")
        return int(not all(report.ready for report, _ in results))

    def _check_options(self):
        """Raises a ValueError for a mistake that is visible in the options."""
        check_json(self.json)
        files = dict.fromkeys(self.files)
        if not files:
            raise ValueError("No files. Pass at least one .tflite file, such as exported/model-int8.tflite.")
        if self.output is None:
            return
        if self.output.exists() and not self.output.is_dir():
            raise ValueError(f"--output requires a folder. Received: {self.output}")
        if len({file.stem for file in files}) < len(files):
            raise ValueError("--output requires files of different names. Received: " + " ".join(map(str, files)))

    def _check_files(self, chips):
        """Raises an error for a file or chip that does not compile anywhere, before the first one is compiled."""
        from keras_vit.export.npu.chips import check_machine, check_sdk
        from keras_vit.export.npu.compile import read_compilable

        check_machine()
        for file in dict.fromkeys(self.files):
            read_compilable(file)
        for chip in chips:
            check_sdk(chip.vendor)

    def _images(self) -> dict:
        """File -> the images of --simulate, (n, H, W, 3) uint8, as the file's metadata specify."""
        if self.simulate is None:
            return {}
        from keras_vit import Preprocessing
        from keras_vit.export import read_description
        from keras_vit.export.names import CLASSIFY
        from keras_vit_cli.inspect.image_files import list_images, read_images, without_damaged

        paths, images = without_damaged(list_images(self.simulate, "--simulate")), {}
        for file in self.files:
            found = read_description(file)
            fields = found.description.preprocessing
            if "image_size" not in fields or next(iter(found.signatures)) != CLASSIFY:
                raise ValueError(
                    f"--simulate requires files of keras-vit export with the signature {CLASSIFY!r}. Received: {file}"
                )
            images[file] = read_images(Preprocessing.from_config(fields, file), self.simulate, paths).pixels
        return images

    def _examine(self, file, chip, temporary, images):
        """A report, and a simulation or None."""
        from keras_vit.export.npu import compile_for_npu, simulate

        show_progress(f"Compiling {file} for {chip}")
        compiled = (self.output or temporary) / f"{file.stem}-{chip.model}.tflite"
        report = compile_for_npu(file, chip, None if self.output is None and images is None else compiled)
        if images is None or _why_not_simulated(report):
            return report, None
        show_progress(f"Simulating {file} on {chip}")
        return report, simulate(file, compiled, images)


def _why_not_simulated(report) -> str | None:
    if report.chip.vendor != "qualcomm":
        return "the simulator is of Qualcomm's chips"
    if report.error:
        return "it does not compile"
    return None if report.ready and report.num_partitions == 1 else "the NPU does not run it whole"


def _print(results, simulated: bool):
    """Prints a report; of several files and chips a table, and reports where an NPU does not run everything."""
    from keras_vit.export.npu import npu_table, simulation_table

    reports = [report for report, _ in results]
    parts = [npu_table(reports)] if len(reports) > 1 else []
    if simulations := [(report, found) for report, found in results if found]:
        parts.append(simulation_table(simulations))
    if skipped := [report for report, found in results if simulated and not found]:
        parts.append(
            "\n".join(f"Not simulated: {one.file} on {one.chip}: {_why_not_simulated(one)}." for one in skipped)
        )
    parts += [str(report) for report in reports if len(reports) == 1 or not report.ready]
    print("\n\n".join(parts))
