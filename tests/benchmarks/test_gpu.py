"""The GPU benchmark runs from start to table, here with a tiny model on the CPU."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

SCRIPT = Path(__file__).parents[2] / "benchmarks/gpu.py"


@pytest.mark.extended
def test_table_without_a_gpu():
    environment = {**os.environ, "JAX_PLATFORMS": "cpu", "JAX_DISABLE_MOST_OPTIMIZATIONS": "1"}
    command = [sys.executable, SCRIPT, "--rounds", "1", "--steps", "1"]
    done = subprocess.run(command, env=environment, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr[-3000:]
    rows = [line for line in done.stdout.splitlines() if line.startswith("| tiny keras_vit |")]
    assert [row.split(" | ")[2] for row in rows] == ["inference", "training"]
