"""The notebooks of the documentation run from top to bottom, and are stored with outputs of such a run."""

import re

import nbformat
import pytest
from blocks import ROOT
from nbclient import NotebookClient

NOTEBOOKS = sorted((ROOT / "docs" / "notebooks").glob("*.ipynb"))


@pytest.fixture(params=NOTEBOOKS, ids=lambda path: path.stem)
def notebook(request):
    return nbformat.read(request.param, as_version=4)


def test_stored_outputs_are_complete_and_small(notebook):
    nbformat.validate(notebook)
    code = [cell for cell in notebook.cells if cell.cell_type == "code"]
    assert code[-1].outputs and [cell.execution_count for cell in code] == list(range(1, len(code) + 1))
    outputs = [output for cell in code for output in cell.outputs]
    assert not [output for output in outputs if output.output_type == "error" or output.get("name") == "stderr"]
    assert sum("image/png" in output.get("data", {}) for output in outputs) >= 1
    assert len(nbformat.writes(notebook)) < 500_000


@pytest.mark.slow
def test_notebook_runs(notebook, tmp_path):
    resources = {"metadata": {"path": tmp_path}}
    stored = numbers_of_weights(notebook)
    NotebookClient(notebook, timeout=600, kernel_name="python3", resources=resources).execute()
    assert numbers_of_weights(notebook) == stored  # the outputs are those of the present model


def numbers_of_weights(notebook):
    return re.findall(r"[\d,]+ weights", nbformat.writes(notebook))


def test_there_are_notebooks():
    assert {path.stem for path in NOTEBOOKS} == {"attention", "fine_tune"}
