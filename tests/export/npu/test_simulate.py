"""Compiled files on Qualcomm's simulator compute what LiteRT computes."""

import numpy as np
import pytest

from keras_vit.export.npu import compile_for_npu, find_chip, run_on_simulator, simulate, simulation_table
from keras_vit.export.tflite.interpreter import run_tflite

pytestmark = [pytest.mark.slow, pytest.mark.extended]


@pytest.fixture(scope="module")
def compiled(artifacts, tmp_path_factory):
    folder, chip = tmp_path_factory.mktemp("compiled"), find_chip("SM8750")
    reports = {}
    for name in ("float32", "int8"):
        reports[name] = compile_for_npu(artifacts[name], chip, folder / f"{name}.tflite")
    return folder, reports


def test_same_classes_and_close_probabilities(artifacts, compiled, images):
    folder, reports = compiled
    images = images[:8]
    found = {name: simulate(artifacts[name], folder / f"{name}.tflite", images) for name in reports}
    # float32 runs in half precision; int8 has steps of 1/256.
    assert found["float32"].agreement == found["int8"].agreement == 1
    assert 0 < found["float32"].max_difference < 0.01 and found["int8"].max_difference < 0.1
    assert found["int8"].num_images == 8 and found["int8"].mean_difference <= found["int8"].max_difference
    table = simulation_table([(reports[name], found[name]) for name in reports])
    assert table.count("| 8 | 100.0% |") == 2


def test_outputs_are_of_the_images(artifacts, compiled, images):
    """The simulator reads its input: on other images it differs from LiteRT."""
    folder, _ = compiled
    expected, _ = run_tflite(artifacts["float32"], images[:4])
    simulated = run_on_simulator(folder / "float32.tflite", images[[1, 2, 3, 0]])
    assert simulated.shape == (4, 4) and simulated.dtype == np.float32
    assert np.abs(simulated - expected).max() > 0.1
    np.testing.assert_allclose(simulated[[3, 0, 1, 2]], expected, atol=0.01)


def test_file_that_is_not_compiled(artifacts, images):
    with pytest.raises(ValueError, match="Received: "):
        run_on_simulator(artifacts["int8"], images[:1])
