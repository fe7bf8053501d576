"""`keras-vit benchmark`: .tflite files side by side on this machine's CPU."""

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import tyro

from keras_vit_cli.json_file import check_json


@dataclass(frozen=True)
class Benchmark:
    """Time .tflite files side by side with LiteRT and XNNPACK: milliseconds, memory, and the operations that take them.

    Each file runs in a process of its own, in turns with the others. It is this machine's CPU, not a phone.

    Args:
        files: Of `keras-vit export`, or any others.
        threads: Of the interpreter.
        runs: Timed calls of each file.
        warmup: Calls before them.
        top: Kinds of operations to print for each file.
        profile: Take times by operation.
        json: Write all figures into this file.
    """

    files: Annotated[tuple[Path, ...], tyro.conf.Positional, tyro.conf.arg(metavar="FILES")]
    threads: int = 2
    runs: int = 50
    warmup: int = 5
    top: int = 5
    profile: bool = True
    json: Path | None = None

    def run(self):
        """Measures, prints a table, and writes the JSON."""
        if not self.files:
            raise ValueError("Name at least one .tflite file.")
        check_json(self.json)
        from keras_vit.export.benchmark.compare import as_json, compare, table
        from keras_vit.atomic_write import write_file

        results = compare(self.files, self.threads, self.runs, self.warmup, self.profile)
        print(table(results, self.top))
        if self.json:
            write_file(self.json, as_json(results).encode())
