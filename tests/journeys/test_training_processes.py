"""Every kind of training under several processes with TF_CONFIG, and with Keras on JAX on eight devices."""

import json
import os
import socket
import subprocess
import sys
from dataclasses import asdict
from pathlib import Path

import pytest
from processes import script

from journeys.cells import Cell, pairwise
from journeys.training import check, train

pytestmark = pytest.mark.slow
FLAGS = "--xla_force_host_platform_device_count=8 --xla_backend_optimization_level=0"
JAX_8 = {"KERAS_BACKEND": "jax", "JAX_PLATFORMS": "cpu", "XLA_FLAGS": FLAGS}


def start(data, folder, cells, environment):
    command = script(__file__, data, folder, json.dumps([asdict(cell) for cell in cells]))
    options = {"stdout": subprocess.PIPE, "stderr": subprocess.STDOUT, "text": True}
    return subprocess.Popen(command, env={**os.environ, **environment}, **options)


def workers(count):
    """TF_CONFIG of each of some worker processes on free ports of this machine."""
    sockets = [socket.create_server(("localhost", 0)) for _ in range(count)]
    addresses = [f"localhost:{free.getsockname()[1]}" for free in sockets]
    for free in sockets:
        free.close()
    tasks = [{"type": "worker", "index": index} for index in range(count)]
    return [{"TF_CONFIG": json.dumps({"cluster": {"worker": addresses}, "task": task})} for task in tasks]


def run_and_check(cells, environments, data, folder):
    running = [start(data, folder, cells, environment) for environment in environments]
    outputs = [process.communicate(timeout=900)[0] for process in running]
    failed = [output[-3000:] for process, output in zip(running, outputs) if process.returncode]
    assert not failed, "\n\n".join(failed)
    for number, cell in enumerate(cells):
        check(cell, data, folder / str(number))


def some_and_all(devices):
    """The first cell alone for `make test`, the others together for `make test-all`."""
    first, *others = [cell for cell in pairwise() if cell.devices == devices]
    cells = [pytest.param([first], id="one"), pytest.param(others, id="others", marks=pytest.mark.extended)]
    return pytest.mark.parametrize("cells", cells)


@some_and_all("workers2")
def test_two_workers(cells, journey_data, tmp_path):
    run_and_check(cells, workers(2), journey_data, tmp_path)


@some_and_all("jax8")
def test_jax_on_eight_devices(cells, journey_data, tmp_path):
    run_and_check(cells, [JAX_8], journey_data, tmp_path)


if __name__ == "__main__":
    data, folder, cells = sys.argv[1:]
    for number, cell in enumerate(json.loads(cells)):
        train(Cell(**cell), Path(data), Path(folder) / str(number))
