import json

import pytest

from keras_vit.recipes.preflight import Report, StepReport
from keras_vit.recipes.preflight.report import parse_topology


@pytest.fixture
def calls(monkeypatch):
    """Replaces `preflight`; returns its arguments. 8 images per device fit, 9 do not."""
    calls = []

    def preflight(recipe, topology, device_batch_size, **options):
        options.pop("log")("")
        calls.append((recipe, topology, device_batch_size, options))
        memory = {"argument": 1e9, "output": 0.0, "alias": 0.0, "temp": 0.0, "generated_code": 0.0}
        size = device_batch_size or recipe.data.batch_size
        step = StepReport("training", size, 1e9 if size <= 8 else 0.0, 1e12, 1e9, (), memory, 1e12, 1e9)
        return Report("toy", parse_topology(topology), "float32", 1_000, (step,))

    monkeypatch.setattr("keras_vit.recipes.preflight.preflight", preflight)
    return calls


def test_options_and_fields_of_the_recipe(calls, tmp_path, run_cli):
    file = tmp_path / "report.json"
    options = ["--topology", "v5e:1", "--num-classes", 7, "--num-train-images", 70, "--largest-batch", "--json", file]
    status, output, _ = run_cli("preflight", "cifar10-scratch", *options, "--data.batch-size", 8)
    ((recipe, topology, device_batch_size, keywords),) = calls
    assert status == 0 and (recipe.data.batch_size, topology, device_batch_size) == (8, "v5e:1", None)
    assert keywords == {"num_classes": 7, "num_train_images": 70, "find_largest_batch": True}
    assert "8 images per device, 8 in total" in output
    report = json.loads(file.read_text())
    assert report["ready"] and report["topology"]["name"] == "v5e:1" and len(report["steps"]) == 1


def test_a_step_that_does_not_fit_ends_with_status_1(calls, run_cli):
    status, output, _ = run_cli("preflight", "cifar10-scratch", "--device-batch-size", 9)
    assert status == 1 and "DOES NOT FIT" in output
    assert run_cli("preflight", "deit-b16-384", "--num-classes", 10)[0] == 1 and len(calls) == 2


def test_list(run_cli):
    status, output, _ = run_cli("preflight", "--list")
    assert status == 0 and "v6e" in output
