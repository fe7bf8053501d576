"""`keras-vit preflight` of recipes and of .tflite files."""

import json

import pytest
from scenes import scene

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


def test_options_and_fields_of_the_recipe(calls, run_cli):
    options = ["--topology", "v5e:1", "--num-classes", 7, "--num-train-images", 70, "--largest-batch"]
    command = ["preflight", "cifar10-scratch", *options, "--data.batch-size", 8]
    status, output, _ = run_cli(*command)
    ((recipe, topology, device_batch_size, keywords),) = calls
    assert status == 0 and (recipe.data.batch_size, topology, device_batch_size) == (8, "v5e:1", None)
    assert keywords == {"num_classes": 7, "num_train_images": 70, "find_largest_batch": True}
    assert "8 images per device, 8 in total" in output
    report = json.loads(run_cli(*command, "--json")[1])
    assert report["ready"] and report["topology"]["name"] == "v5e:1" and len(report["steps"]) == 1


def test_a_step_that_does_not_fit_ends_with_status_1(calls, run_cli):
    status, output, _ = run_cli("preflight", "cifar10-scratch", "--device-batch-size", 9)
    assert status == 1 and "DOES NOT FIT" in output
    assert run_cli("preflight", "deit-b16-384", "--num-classes", 10)[0] == 1 and len(calls) == 2


def test_list(run_cli):
    status, output, _ = run_cli("preflight", "--list")
    assert status == 0 and "v6e" in output


@pytest.mark.slow
def test_table_json_files_and_simulation(tflite_files, tmp_path, run_cli):
    folder, images = tmp_path / "new" / "compiled", tmp_path / "images"
    images.mkdir()
    for i in range(3):
        scene(i, (30, 20)).save(images / f"{i}.png")
    options = ["--npu", "SM8350", "SM8750", "--output", folder, "--simulate", images]
    status, printed, _ = run_cli("preflight", *tflite_files, *options)
    assert status == 1  # SM8350 has integer operations only
    assert printed.count("export the format int8") == printed.count("Not simulated: ") == 2
    entries = json.loads(run_cli("preflight", *tflite_files, *options, "--json")[1])
    chips = [(entry["chip"]["model"], entry["ready"]) for entry in entries]
    assert chips == [("SM8350", False), ("SM8750", True)] * 2
    names = ["model-dynamic-int8-SM8750.tflite", "model-float32-SM8750.tflite"]
    assert sorted(file.name for file in folder.iterdir()) == names
    assert (folder / names[1]).stat().st_size == entries[1]["size_bytes"]
    assert entries[0]["simulation"] is None  # it does not compile
    assert entries[1]["simulation"]["num_images"] == 3 and entries[1]["simulation"]["max_difference"] < 0.01


@pytest.mark.slow
def test_all_files_and_chips_are_checked_before_the_first_is_compiled(tflite_files, tmp_path, run_cli, monkeypatch):
    monkeypatch.setattr("keras_vit.export.npu.compile_for_npu", lambda *arguments: pytest.fail("compiled"))
    (cut := tmp_path / "cut.tflite").write_bytes(tflite_files[0].read_bytes()[:2000])
    (copies := tmp_path / "copies").mkdir()
    (copies / tflite_files[0].name).write_bytes(tflite_files[0].read_bytes())
    before = sorted(tmp_path.rglob("*"))
    for arguments, word in (
        ([tmp_path / "no.tflite", "--npu", "SM8750"], "no.tflite"),
        ([cut, "--npu", "SM8750"], "damaged"),
        (["--npu", "SM8750", "MT6991"], "mediatek"),
        ([tflite_files[0].parent, "--npu", "SM8750"], f"{tflite_files[1]}, {tflite_files[0]}"),
        ([copies / tflite_files[0].name, "--npu", "SM8750"], "--output requires files of different names"),
        (["--output", cut / "x"], f"{cut}/x"),
        (["--simulate", tmp_path / "no"], "/no"),
    ):
        arguments += [] if "--output" in arguments else ["--output", tmp_path / "out"]
        status, _, errors = run_cli("preflight", tflite_files[0], *arguments)
        assert status == 1 and word in errors and errors.count("\n") == 1, (arguments, errors)
        assert sorted(tmp_path.rglob("*")) == before
