"""Every kind of training, by `keras-vit train` on the devices of this process: one, and two and four replicas."""

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

import keras_vit
from journeys.cells import CHOICES, pairwise
from journeys.training import check, train

pytestmark = pytest.mark.slow
CPUS = {"one": 1, "mirrored2": 2, "mirrored4": 4}


def local_cells():
    """The cells of this process; `make test` has those of few traced steps, make test-all the others.

    Replicas trace a step each, and an interrupted run is trained three times.
    """
    for cell in pairwise():
        if cell.devices in CPUS:
            two = cell.devices == "mirrored2" and (cell.interrupted or cell.kind == "autoencoder")
            extended = cell.devices == "mirrored4" or two
            yield pytest.param(cell, id=str(cell), marks=[pytest.mark.extended] if extended else [])


@pytest.mark.parametrize("cell", list(local_cells()))
def test_a_training_ends_with_a_model_and_true_metrics(cell, journey_data, tmp_path, logical_cpus):
    logical_cpus(CPUS[cell.devices])
    train(cell, journey_data, tmp_path / "run")
    check(cell, journey_data, tmp_path / "run")
    if cell.interrupted:
        train(replace(cell, interrupted=False), journey_data, tmp_path / "whole")
        resumed, whole = (keras_vit.load(tmp_path / name).get_weights() for name in ("run", "whole"))
        for one, other in zip(resumed, whole, strict=True):  # bit for bit on one device
            np.testing.assert_allclose(one, other, rtol=0, atol=0 if cell.devices == "one" else 1e-6)


def test_the_matrix_of_the_readme_is_what_runs():
    rows = [line for line in (Path(__file__).parent / "README.md").read_text().splitlines() if line.startswith("| ")]
    heads, table = rows[0].strip("| ").split(" | ")[1:], {}
    for row in rows[1 : 1 + len(CHOICES["kind"])]:
        kind, *texts = row.strip("| ").split(" | ")
        table |= {(kind, devices): text for devices, text in zip(heads, texts, strict=True) if text != "-"}
    assert table == {(cell.kind, cell.devices): ", ".join(cell.options()) for cell in pairwise()}
