"""`keras-vit benchmark`: compares .tflite files on this machine's CPU."""

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import tyro

from keras_vit_cli.output_folder import check_json


@dataclass(frozen=True)
class Benchmark:
    """Measure latency and memory of .tflite files with LiteRT and XNNPACK.

    Each file runs in a separate process, in turns with the others. Results are for this machine's CPU, not for a phone.

    Args:
        files: Files of `keras-vit export`, or any others.
        num_threads: Threads of the interpreter.
        num_runs: Timed calls of each file.
        warmup_runs: Calls before them.
        json: File to write all results to.
    """

    files: Annotated[tuple[Path, ...], tyro.conf.Positional, tyro.conf.arg(metavar="FILES")]
    num_threads: int = 2
    num_runs: int = 50
    warmup_runs: int = 5
    json: Path | None = None

    def run(self):
        """Measures, prints a table, and writes the JSON."""
        if not self.files:
            raise ValueError("No files. Pass at least one .tflite file.")
        check_json(self.json)
        from keras_vit.atomic_write import write_file
        from keras_vit.export.benchmark import as_json, compare, table

        results = compare(self.files, self.num_threads, self.num_runs, self.warmup_runs)
        print(table(results))
        if self.json:
            write_file(self.json, as_json(results).encode())
