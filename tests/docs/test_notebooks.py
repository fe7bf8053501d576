"""The notebooks of the documentation run from top to bottom, and are stored with outputs of such a run."""

import re

import nbformat
import pytest
from blocks import ROOT
from nbclient import NotebookClient


@pytest.fixture(params=("attention", "fine_tune"))
def notebook(request):
    return nbformat.read(ROOT / "docs" / "notebooks" / f"{request.param}.ipynb", as_version=4)


def test_stored_outputs_are_complete_and_small(notebook):
    nbformat.validate(notebook)
    code = [cell for cell in notebook.cells if cell.cell_type == "code"]
    assert code[-1].outputs and [cell.execution_count for cell in code] == list(range(1, len(code) + 1))
    outputs = [output for cell in code for output in cell.outputs]
    assert not [output for output in outputs if output.output_type == "error" or output.get("name") == "stderr"]
    assert any("image/png" in output.get("data", {}) for output in outputs)
    assert len(nbformat.writes(notebook)) < 500_000


@pytest.mark.extended
def test_notebook_runs(notebook, tmp_path):
    stored = numbers_of_weights(notebook)
    resources = {"metadata": {"path": tmp_path}}
    NotebookClient(notebook, timeout=600, kernel_name="python3", resources=resources).execute()
    assert numbers_of_weights(notebook) == stored  # the outputs are those of the present model


def numbers_of_weights(notebook):
    return re.findall(r"[\d,]+ weights", nbformat.writes(notebook))
