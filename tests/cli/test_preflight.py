import json

import pytest

from keras_vit.recipes.preflight import Report, StepReport
from keras_vit.recipes.preflight.chips import parse_topology
from keras_vit_cli.main import main


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


def test_options_and_fields_of_the_recipe(calls, tmp_path, capsys):
    file = tmp_path / "report.json"
    options = ["--topology", "v5e:1", "--num-classes", "7", "--num-train-images", "70", "--largest-batch"]
    assert main(["preflight", "cifar10-scratch", *options, "--data.batch-size", "8", "--json", str(file)]) == 0
    ((recipe, topology, device_batch_size, keywords),) = calls
    assert (recipe.data.batch_size, topology, device_batch_size) == (8, "v5e:1", None)
    assert keywords == {"num_classes": 7, "num_train_images": 70, "find_largest_batch": True}
    assert "8 images per device, 8 in total" in capsys.readouterr().out
    report = json.loads(file.read_text())
    assert report["ready"] and report["topology"]["name"] == "v5e:1" and len(report["steps"]) == 1


def test_weights_determine_the_architecture(calls, tmp_path, capsys):
    weights = tmp_path / "model.keras"
    options = ["preflight", "cifar10-scratch", "--weights", str(weights), "--architecture.depth", "3"]
    assert main(options) == 1
    error = capsys.readouterr().err
    assert "There is no weights file or folder" in error and "--architecture.depth 3 has no effect, since the" in error
    assert main(["preflight", "deit-b16-384", "--num-classes", "10"]) == 1 and len(calls) == 1  # too large for a stub


def test_exit_status_of_a_step_that_does_not_fit(calls, capsys):
    assert main(["preflight", "cifar10-scratch", "--device-batch-size", "9"]) == 1
    assert "DOES NOT FIT" in capsys.readouterr().out


def test_list(capsys):
    assert main(["preflight", "--list"]) == 0
    assert "v6e" in capsys.readouterr().out


def test_no_name(capsys):
    assert main(["preflight"]) == 1
    assert "Pass the name of a recipe" in capsys.readouterr().err
