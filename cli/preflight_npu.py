"""`keras-vit preflight MODEL.tflite --npu CHIP`: compiles files for the NPUs of phones, without a phone."""

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import tyro

from keras_vit_cli.json_file import check_json
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
        output: Folder for the compiled files, MODEL-CHIP.tflite. By default they are not saved.
        json: Write all figures to this file.
    """

    files: Annotated[tuple[Path, ...], tyro.conf.Positional, tyro.conf.arg(metavar="FILES")]
    npu: tuple[str, ...] = ()
    output: Path | None = None
    json: Path | None = None

    def run(self) -> int:
        """Compiles, prints the reports, and returns the exit status."""
        from keras_vit.atomic_write import write_file
        from keras_vit.export.npu import compile_for_npu, default_chips, find_chip, npu_table

        check_json(self.json)
        chips = [find_chip(name) for name in dict.fromkeys(self.npu)] or default_chips()
        outputs = self._outputs(chips)
        reports = []
        for file in dict.fromkeys(self.files):
            for chip in chips:
                show_progress(f"Compiling {file} for {chip}")
                reports.append(compile_for_npu(file, chip, outputs.get((file, chip))))
        show_progress("")
        if len(reports) > 1:
            print(npu_table(reports) + "\n")
        print("\n\n".join(str(report) for report in reports if len(reports) == 1 or not report.ready))
        if self.json:
            write_file(self.json, json.dumps([report.as_dict() for report in reports], indent=2) + "\n")
        return int(not all(report.ready for report in reports))

    def _outputs(self, chips) -> dict:
        """(file, chip) -> where to save the compiled file; creates the folder."""
        if not self.files:
            raise ValueError("No files. Pass at least one .tflite file, such as exported/model-int8.tflite.")
        if self.output is None:
            return {}
        if self.output.exists() and not self.output.is_dir():
            raise ValueError(f"--output requires a folder. Received: {self.output}")
        files = dict.fromkeys(self.files)
        if len({file.stem for file in files}) < len(files):
            raise ValueError("--output requires files of different names. Received: " + " ".join(map(str, self.files)))
        self.output.mkdir(parents=True, exist_ok=True)
        return {(file, chip): self.output / f"{file.stem}-{chip.model}.tflite" for file in files for chip in chips}
