"""`keras-vit doctor`: every known ailment from made-up machines, and this machine as it is."""

import json
import subprocess
import sys
from dataclasses import replace

import pytest
import tensorflow as tf
from simulated_tpu import simulated_tpu

from keras_vit.cli.doctor import command as doctor
from keras_vit.cli.doctor import known_problems as ailments
from keras_vit.cli.doctor.command import PROBE, Doctor, ask, check_answer, chips, lock, look, report
from keras_vit.cli.doctor.known_problems import CHECKS, Machine

LAPTOP = Machine(
    versions={"keras_vit": "0.1.0", "keras": "3.15.1", "tensorflow": "2.20.0", "tensorflow-datasets": "4.9.10"},
    free_bytes={"/tmp": 50_000_000_000},
)
TPU_VM = replace(
    LAPTOP,
    versions={**LAPTOP.versions, "tensorflow-tpu": "2.20.0", "libtpu": "0.0.27"},
    environment={"TF_PLUGGABLE_DEVICE_LIBRARY_PATH": __file__},
    chips=("v5e",) * 4,
)
del TPU_VM.versions["tensorflow"]
HEALTHY = {"version": "2.20.0", "physical_devices": ["CPU:0"], "logical_devices": ["CPU:0"], "exit_status": 0}
HEALTHY |= {"strategy": "DefaultDistributionStrategy", "replicas": 1, "right_answers": 1, "last_words": []}


def findings(machine):
    return [finding for check in CHECKS for finding in check(machine)]


@pytest.mark.parametrize("machine", [LAPTOP, TPU_VM, replace(TPU_VM, chips=("v3",) * 4, environment={})])
def test_good_machines_have_no_ailment(machine):
    assert findings(machine) == []


@pytest.mark.parametrize(
    "machine,versions,severity,what,remedy",
    [
        (
            TPU_VM,
            {"tensorflow": "2.20.0"},
            "failure",
            "tensorflow and tensorflow-tpu are installed",
            "uninstall -y tens",
        ),
        (
            TPU_VM,
            {"tensorflow": "2.20.0", "tf-models-official": "2.20.0"},
            "failure",
            "models-official asks",
            "--no-deps",
        ),
        (TPU_VM, {"libtpu": "0.0.33"}, "failure", "libtpu is 0.0.33", "libtpu<=0.0.27"),
        (TPU_VM, {"libtpu": "0.0.100.dev1+nightly"}, "failure", "libtpu is 0.0.100", "libtpu<=0.0.27"),
        (TPU_VM, {"libtpu": None}, "failure", "libtpu is not", "libtpu<=0.0.27"),
        (TPU_VM, {"tensorflow-tpu": None, "tensorflow": "2.20.0"}, "failure", "4 TPU chips .v5e.", "keras_vit.tpu"),
        (
            TPU_VM,
            {"tensorflow-tpu": None, "tensorflow-cpu": "2.20.0"},
            "failure",
            "4 TPU chips",
            "^pip uninstall -y tensorflow-cpu && pip install",
        ),
        (LAPTOP, {"tensorflow": None}, "failure", "no TensorFlow", "keras_vit.tensorflow,recipes"),
        (LAPTOP, {"tensorflow": "2.21.0"}, "warning", "tensorflow is 2.21.0", "tensorflow>=2.20,<2.21"),
        (LAPTOP, {"tensorflow": "2.18.1"}, "warning", "tensorflow is 2.18.1", "tensorflow>=2.20,<2.21"),
        (LAPTOP, {"keras": "3.12.9"}, "failure", "older than 3.13", "keras>=3.13"),
        (LAPTOP, {"tensorflow-addons": "0.23.0"}, "warning", "tensorflow-addons ended", "uninstall"),
        (LAPTOP, {"tensorflow-datasets": None}, "failure", "tensorflow-datasets is missing", "keras_vit.recipes"),
    ],
)
def test_packages(machine, versions, severity, what, remedy):
    installed = {name: version for name, version in {**machine.versions, **versions}.items() if version}
    check_finding(replace(machine, versions=installed), severity, what, remedy)


@pytest.mark.parametrize(
    "machine,environment,severity,what,remedy",
    [
        (LAPTOP, {"TF_USE_LEGACY_KERAS": "1"}, "warning", "TF_USE_LEGACY_KERAS", "unset"),
        (LAPTOP, {"TPU_NAME": "local"}, "failure", "no TPU chip here", "unset TPU_NAME"),
        (
            TPU_VM,
            {"TPU_NAME": "my-tpu", **TPU_VM.environment},
            "warning",
            "'my-tpu'",
            "unset TPU_NAME.*TPU_LOAD_LIBRARY=0",
        ),
        (TPU_VM, {}, "warning", "v5e are reached through PJRT", "NEXT_PLUGGABLE_DEVICE_USE_C_API=true"),
        (TPU_VM, {"TF_PLUGGABLE_DEVICE_LIBRARY_PATH": "/no"}, "failure", "points nowhere: /no", "get_library_path"),
        (LAPTOP, {"GOOGLE_APPLICATION_CREDENTIALS": "/no"}, "failure", "points nowhere: /no", "unset"),
        (LAPTOP, {"TF_CONFIG": "worker 0"}, "failure", "TF_CONFIG does not say.*JSONDecodeError", "export TF_CONFIG"),
        (LAPTOP, {"TF_CONFIG": '{"cluster": {"worker": ["a:1"]}}'}, "failure", "KeyError: 'task'", "unset TF_CONFIG"),
        (replace(TPU_VM, chips=()), {}, "warning", "asks for metadata for minutes", "TPU_SKIP_MDS_QUERY=1"),
    ],
)
def test_variables(machine, environment, severity, what, remedy):
    check_finding(replace(machine, environment=environment), severity, what, remedy)


@pytest.mark.parametrize(
    "changes,severity,what,remedy",
    [
        ({"backend": "jax"}, "failure", "backend of Keras is 'jax'", "KERAS_BACKEND=tensorflow"),
        ({"lock": "is locked by process 7"}, "failure", "in use: .* process 7", "rm -f /tmp/libtpu_lockfile"),
        ({"free_bytes": {"/tmp": 9_000_000_000}}, "warning", "9.0 GB are free where /tmp is", "gs://"),
        ({"free_bytes": {"/tmp": 10_000_000}}, "failure", "0.0 GB are free where /tmp is", "gs://"),
    ],
)
def test_the_rest_of_the_machine(changes, severity, what, remedy):
    check_finding(replace(LAPTOP, **changes), severity, what, remedy)


def check_finding(machine, severity, what, remedy):
    (finding,) = findings(machine)
    assert finding.severity == severity
    with pytest.raises(ValueError, match=what):
        raise ValueError(finding.what)
    with pytest.raises(ValueError, match=remedy):
        raise ValueError(finding.remedy)


def test_variables_that_are_right_are_no_ailment():
    config = '{"cluster": {"chief": ["a:1"], "worker": ["b:1"]}, "task": {"type": "worker", "index": "0"}}'
    pod = {"TPU_NAME": "my-pod", "TPU_LOAD_LIBRARY": "0"}
    for machine, environment in [(LAPTOP, {"TF_CONFIG": config}), (TPU_VM, pod), (replace(TPU_VM, chips=()), pod)]:
        assert findings(replace(machine, environment=environment)) == []


def test_overruled_requirements():
    requirements = {
        "tensorflow": [
            "protobuf>=5.28.0",
            "numpy>=1.26",
            'protobuf<5; extra == "old"',
            'numpy<1; python_version < "3"',
        ],
        "tensorflow-datasets": ["protobuf", "nothing-installed>3"],
    }
    versions = {**LAPTOP.versions, "protobuf": "4.25.3", "numpy": "2.4.6"}
    check_finding(
        replace(LAPTOP, versions=versions, requirements=requirements),
        "warning",
        "tensorflow 2.20.0 asks for protobuf>=5.28.0; 4.25.3 is there",
        "pip install 'protobuf>=5.28.0'",
    )


def test_requirements_that_cannot_be_read_are_passed_over():
    lines = {"keras": ["numpy (>=1.26", "h5py"]}
    assert findings(replace(LAPTOP, requirements=lines)) == []


def test_half_an_installation_is_an_old_one(tmp_path, monkeypatch):
    (tmp_path / "keras-3.15.1.dist-info").mkdir()  # what an interrupted pip leaves
    (tmp_path / "keras-3.15.1.dist-info" / "METADATA").touch()
    monkeypatch.syspath_prepend(tmp_path)
    machine = replace(LAPTOP, versions=look().versions)
    assert any("Keras is 0, older" in finding.what for finding in findings(machine))


def test_chips_are_found_by_their_numbers(tmp_path):
    numbers = [("0x1ae0", "0x0063"), ("0x1ae0", "0x0063"), ("0x1ae0", "0x1f1f"), ("0x10de", "0x0063")]
    for i, (vendor, number) in enumerate(numbers):
        (tmp_path / str(i)).mkdir()
        (tmp_path / str(i) / "vendor").write_text(vendor + "\n")
        (tmp_path / str(i) / "device").write_text(number + "\n")
    (tmp_path / "empty").mkdir()
    assert chips(tmp_path) == ("v5e", "v5e")


def test_the_holder_of_the_tpu_is_found(tmp_path):
    file = tmp_path / "libtpu_lockfile"
    assert lock(file) is None
    file.touch()
    assert lock(file) is None  # libtpu leaves its file behind
    code = f"import fcntl; file = open({str(file)!r}, 'w'); fcntl.lockf(file, fcntl.LOCK_EX); print(1); input()"
    holder = subprocess.Popen([sys.executable, "-uc", code], stdin=subprocess.PIPE, stdout=subprocess.PIPE)
    with holder:
        holder.stdout.readline()
        assert lock(file) == f"is locked by process {holder.pid}"
    assert lock(file) is None


@pytest.mark.parametrize(
    "code,timeout,what,remedy",
    [
        (
            "import os, sys; print('E bad library', file=sys.stderr, flush=True); os.abort()",
            60,
            "`import tensorflow` ended the process .SIGABRT.. It said: E bad library",
            "libtpu<=0.0.27",
        ),
        ("import time; time.sleep(60)", 1, "`import tensorflow` gave no answer within", "several hosts"),
        (
            "print('FOUND{\"version\": 1}', flush=True); import time; time.sleep(60)",
            10,  # Python takes its time to start on a busy machine
            "`choose_strategy.*no answer",
            "unset",
        ),
        ("raise ImportError('gencode 6, runtime 5')", 60, "`import tensorflow` failed.* runtime 5", "new environment"),
        (
            PROBE.replace("tensorflow as tf", "no_tensorflow as tf"),
            60,
            "failed. It said: ModuleNotFoundError: No module named 'no_tensorflow'",
            "new environment",
        ),
    ],
)
def test_what_happens_to_tensorflow_is_told(code, timeout, what, remedy):
    machine = replace(TPU_VM, environment={})
    (finding,) = check_answer(machine, ask(machine, code, timeout_s=timeout))
    assert finding.severity == "failure"
    with pytest.raises(ValueError, match=what):
        raise ValueError(finding.what)
    with pytest.raises(ValueError, match=remedy):
        raise ValueError(finding.remedy)


def test_what_tensorflow_says_is_judged():
    assert list(check_answer(LAPTOP, HEALTHY)) == []
    for machine, changes, severity, what in [
        (TPU_VM, {}, "failure", "sees none of them"),
        (LAPTOP, {"right_answers": 0}, "failure", "wrong products"),
        (replace(LAPTOP, nvidia=True), {}, "warning", "NVIDIA"),
    ]:
        (finding,) = check_answer(machine, {**HEALTHY, **changes})
        assert finding.severity == severity and what in finding.what
    assert list(check_answer(TPU_VM, {**HEALTHY, "strategy": "TPUStrategy", "replicas": 4, "right_answers": 4})) == []
    text = report(replace(TPU_VM, environment={"TF_CONFIG": "{}"}), HEALTHY, [])
    assert "4 x v5e" in text and "multi-worker" in text and "Nothing is wrong." in text


def test_a_tpu_is_known_and_asked_in_a_graph_that_it_takes(monkeypatch, capsys):
    """There is none to run it, which comes after the graph is made."""
    monkeypatch.setattr("keras_vit.recipes.distributed.strategy.choose_strategy", lambda name: simulated_tpu())
    monkeypatch.setattr(sys, "excepthook", sys.excepthook)
    with pytest.raises(tf.errors.OpError, match="TPUReplicate"):
        exec(PROBE, {})
    assert '"strategy": "TPUStrategy", "replicas": 2' in capsys.readouterr().out


def test_this_machine(monkeypatch, capsys):
    for name in ("TPU_NAME", "TF_CONFIG", "KERAS_BACKEND"):
        monkeypatch.delenv(name, raising=False)
    status = Doctor(json=True).run()
    found = json.loads(capsys.readouterr().out)
    assert found["versions"]["tensorflow"] == found["tensorflow"]["version"]
    assert found["tensorflow"]["replicas"] == found["tensorflow"]["right_answers"] == 1
    assert found["cores"] >= 1 and found["memory_bytes"] > 1e8
    assert status == any(finding["severity"] == "failure" for finding in found["findings"])


def test_nothing_but_the_standard_library_is_imported():
    """Without the package around it, whose import brings Keras."""
    code = f"""
import importlib.util, sys
for name, file in {{"ailments": {ailments.__file__!r}, "doctor": {doctor.__file__!r}}}.items():
    spec = importlib.util.spec_from_file_location("keras_vit.cli." + name, file)
    sys.modules[spec.name] = module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
assert not {{"keras", "tensorflow", "numpy", "tyro"}} & set(sys.modules)
"""
    subprocess.run([sys.executable, "-c", code], check=True)
