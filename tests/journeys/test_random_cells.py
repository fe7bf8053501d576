"""More trainings, drawn at random by the seed below: change it to look elsewhere."""

import pytest

from journeys.cells import random_cells
from journeys.test_training import CPUS
from journeys.test_training_processes import JAX_8, run_and_check, workers
from journeys.training import check, train

pytestmark = [pytest.mark.slow, pytest.mark.extended]
SEED, COUNT = 20261127, 12


@pytest.mark.parametrize("cell", random_cells(SEED, COUNT), ids=str)
def test_a_training_ends_with_a_model_and_true_metrics(cell, journey_data, tmp_path, logical_cpus):
    if cell.devices in CPUS:
        logical_cpus(CPUS[cell.devices])
        train(cell, journey_data, tmp_path / "0")
        check(cell, journey_data, tmp_path / "0")
    else:
        environments = {"workers2": workers(2), "jax8": [JAX_8]}[cell.devices]
        run_and_check([cell], environments, journey_data, tmp_path)
