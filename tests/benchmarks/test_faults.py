"""A short part of benchmarks/faults.py, and that it can fail."""

import sys
from pathlib import Path

import pytest

pytestmark = [pytest.mark.slow, pytest.mark.filterwarnings("default")]  # damaged files may warn of what they say

CHEAP = ("weights", "hostile", "recipe.json", "TFRecord")


@pytest.fixture
def faults(monkeypatch):
    monkeypatch.syspath_prepend(str(Path(__file__).parents[2] / "benchmarks"))
    import faults

    faults.whole_weights.cache_clear()
    yield faults
    sys.modules.pop("faults")


def test_nothing_is_lost(faults, tmp_path):
    tried, failed = faults.run(faults.kinds(tmp_path, CHEAP), tmp_path, seed=0, faults=50)
    assert len(tried) == 7 and sum(tried.values()) == 50
    assert not failed


def test_faults_are_found(faults, tmp_path, monkeypatch, capsys):
    """A reader that never fails, and one whose errors say nothing."""
    kinds = faults.kinds(tmp_path, ("weights .npz",))
    model = faults.load(tmp_path / "weights" / "model.npz")
    path = tmp_path / "weights" / "model.npz"
    faults.whole_weights(path)[0][:] += 1
    model.trainable = False
    monkeypatch.setattr(faults, "load", lambda _: model)
    result = faults.run(kinds, tmp_path, seed=0, faults=2)
    assert [reason for *_, reason in result[1]] == ["silently different weights"] * 2
    assert faults.report(*result) == 1 and "| weights .npz | 2 | 0 | 2 |" in capsys.readouterr().out
    monkeypatch.setattr(faults, "load", lambda _: {}["a"])
    _, failed = faults.run(kinds, tmp_path, seed=0, faults=1)
    assert failed == [("weights .npz", 0, "KeyError: 'a'")]
