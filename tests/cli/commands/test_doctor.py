"""`keras-vit doctor`: what it finds on machines with known problems, and that it imports nothing."""

import re
import subprocess
import sys
from dataclasses import replace

import pytest
import tensorflow as tf
from simulated_tpu import simulated_tpu

from keras_vit_cli.commands.doctor.checks import (
    CHECKS,
    Machine,
    check_tpu_lock,
    find_tpu_chips,
)
from keras_vit_cli.commands.doctor.command import (
    PROBE,
    Doctor,
    check_results,
    read_results,
    run_probe,
)

LAPTOP = Machine(
    versions={"vit-for-keras": "0.1.0", "keras": "3.15.1", "tensorflow": "2.20.0", "tensorflow-datasets": "4.9.10"},
    free_bytes={"/tmp": 50_000_000_000},
)
TPU_VM = replace(
    LAPTOP,
    versions={**LAPTOP.versions, "tensorflow-tpu": "2.20.0", "libtpu": "0.0.27"},
    environment={"TF_PLUGGABLE_DEVICE_LIBRARY_PATH": __file__},
    tpu_chips=("v5e",) * 4,
)
del TPU_VM.versions["tensorflow"]


@pytest.mark.extended
def test_this_machine(monkeypatch, capsys):
    for name in ("TPU_NAME", "TF_CONFIG", "KERAS_BACKEND"):
        monkeypatch.delenv(name, raising=False)
    status = Doctor().run()
    rows = dict(re.split(r"\s{2,}", line, maxsplit=1) for line in capsys.readouterr().out.splitlines() if "  " in line)
    assert rows["tensorflow"] == tf.__version__ and rows["working replicas"] == "1"
    assert re.match(r"\d+ CPU cores, \d+ GB of memory; ", rows["host"]) and status == ("FAILURE" in rows)


def test_nothing_but_the_standard_library_is_imported():
    packages = "{'keras', 'keras_vit', 'tensorflow', 'numpy', 'tyro'}"
    code = f"import sys, keras_vit_cli.commands.doctor.command\nassert not {packages} & set(sys.modules)"
    subprocess.run([sys.executable, "-c", code], check=True)


def test_tpu_chips_are_found_by_their_pci_ids(tmp_path):
    ids = [("0x1ae0", "0x0063"), ("0x1ae0", "0x0063"), ("0x1ae0", "0x1f1f"), ("0x10de", "0x0063")]
    for i, (vendor, number) in enumerate(ids):
        (tmp_path / str(i)).mkdir()
        (tmp_path / str(i) / "vendor").write_text(vendor + "\n")
        (tmp_path / str(i) / "device").write_text(number + "\n")
    (tmp_path / "empty").mkdir()
    assert find_tpu_chips(tmp_path) == ("v5e", "v5e")


def test_tpu_lock(tmp_path):
    file = tmp_path / "libtpu_lockfile"
    assert check_tpu_lock(file) is None
    file.touch()
    assert check_tpu_lock(file) is None
    code = f"import fcntl; file = open({str(file)!r}, 'w'); fcntl.lockf(file, fcntl.LOCK_EX); print(1); input()"
    holder = subprocess.Popen([sys.executable, "-uc", code], stdin=subprocess.PIPE, stdout=subprocess.PIPE)
    with holder:
        holder.stdout.readline()
        assert check_tpu_lock(file) == "is locked by another process"
    assert check_tpu_lock(file) is None


JAX_VM = replace(
    LAPTOP, backend="jax", tpu_chips=("v5e",) * 4, versions={**LAPTOP.versions, "jax": "0.10.2", "libtpu": "0.0.51"}
)
NO_CHIPS = replace(TPU_VM, tpu_chips=(), environment={})


def findings(machine):
    return [finding for check in CHECKS for finding in check(machine)]


@pytest.mark.parametrize(
    "machine",
    [
        LAPTOP,
        TPU_VM,
        replace(TPU_VM, tpu_chips=("v3",) * 4, environment={}),
        JAX_VM,
        replace(TPU_VM, environment={"TPU_NAME": "my-pod", "TPU_LOAD_LIBRARY": "0"}),
        replace(NO_CHIPS, environment={"TPU_NAME": "my-pod", "TPU_LOAD_LIBRARY": "0"}),
    ],
)
def test_machines_without_problems(machine):
    assert findings(machine) == []


PROBLEMS = [
    (TPU_VM, {"tensorflow": "2.20.0"}, "failure", "tensorflow-tpu", "uninstall -y tensorflow"),
    (TPU_VM, {"libtpu": "0.0.33"}, "failure", "0.0.33", "libtpu<=0.0.27"),
    (TPU_VM, {"libtpu": "0.0.100.dev1+nightly"}, "failure", "0.0.100", "libtpu<=0.0.27"),
    (TPU_VM, {"libtpu": None}, "failure", "without libtpu", "libtpu<=0.0.27"),
    (TPU_VM, {"tensorflow-tpu": None, "tensorflow": "2.20.0"}, "failure", "4 TPU chips (v5e)", "vit-for-keras[tpu"),
    (TPU_VM, {"tensorflow-tpu": None, "tensorflow-cpu": "2.20.0"}, "failure", "4 TPU", "uninstall -y tensorflow-cpu"),
    (LAPTOP, {"tensorflow": None}, "failure", "TensorFlow", "vit-for-keras[tensorflow,recipes"),
    (LAPTOP, {"keras-vit": "1.0.1"}, "failure", "keras-vit 1.0.1", "pip uninstall -y keras-vit"),
    (LAPTOP, {"tensorflow-datasets": None}, "failure", "tensorflow-datasets", "vit-for-keras[recipes"),
    (LAPTOP, {"TPU_NAME": "local"}, "failure", "no TPU chip", "unset TPU_NAME"),
    (TPU_VM, {"TPU_NAME": "my-tpu", **TPU_VM.environment}, "warning", "'my-tpu'", "TPU_LOAD_LIBRARY=0"),
    (replace(TPU_VM, environment={}), {}, "warning", "PJRT", "NEXT_PLUGGABLE_DEVICE_USE_C_API=true"),
    (NO_CHIPS, {}, "warning", "metadata server", "TPU_SKIP_MDS_QUERY=1"),
    (replace(LAPTOP, backend="jax"), {}, "failure", "'jax'", "KERAS_BACKEND=tensorflow"),
    (replace(LAPTOP, tpu_lock="is locked by another process"), {}, "failure", "another", "rm -f /tmp/libtpu_lockfile"),
    (
        replace(LAPTOP, free_bytes={"/tmp": 9_000_000_000}),
        {},
        "warning",
        "9.0 GB are free on the disk of /tmp",
        "gs://",
    ),
    (replace(LAPTOP, free_bytes={"/tmp": 10_000_000}), {}, "failure", "0.0 GB are free on the disk of /tmp", "gs://"),
]


@pytest.mark.parametrize("machine,changes,severity,problem,fix", PROBLEMS)
def test_problems(machine, changes, severity, problem, fix):
    """Changes: environment variables in capitals, versions of packages otherwise."""
    environment = {name: value for name, value in changes.items() if name.isupper()} or machine.environment
    versions = {**machine.versions, **{name: value for name, value in changes.items() if not name.isupper()}}
    versions = {name: version for name, version in versions.items() if version}
    (finding,) = findings(replace(machine, environment=environment, versions=versions))
    assert finding.severity == severity and problem in finding.problem and fix in finding.fix


RESULTS = {"version": "2.20.0", "physical_devices": ["CPU:0"], "logical_devices": ["CPU:0"], "exit_status": 0}
RESULTS |= {"strategy": "DefaultDistributionStrategy", "replicas": 1, "working_replicas": 1, "stderr": []}
ABORT = "import os, sys; print('E bad library', file=sys.stderr, flush=True); os.abort()"


@pytest.mark.parametrize(
    "code,timeout_s,problems,fix",
    [
        (ABORT, 60, ("SIGABRT", "E bad library"), "libtpu<=0.0.27"),
        ("import time; time.sleep(60)", 0.1, ("timed out after 180 s",), "slice"),
        ("raise ImportError('gencode 6, runtime 5')", 60, ("failed", "runtime 5"), "new environment"),
        (PROBE.replace("tensorflow as tf", "no_tensorflow as tf"), 60, ("'no_tensorflow'",), "new environment"),
    ],
)
def test_failures_of_the_probe(code, timeout_s, problems, fix):
    machine = replace(TPU_VM, environment={})
    (finding,) = check_results(machine, run_probe(machine, code, timeout_s))
    assert finding.severity == "failure" and fix in finding.fix
    assert all(problem in finding.problem for problem in ("`import tensorflow`", *problems))


def test_a_timeout_names_the_stage_that_hangs():
    output = ["a log line\n", 'RESULT{"version": "2.20.0"}\n', 'RESULT{"rep']
    results = read_results(output, ["\n", "I started\n"], None)
    assert results == {"version": "2.20.0", "exit_status": None, "stderr": ["I started"]}
    (finding,) = check_results(LAPTOP, results)
    assert finding.problem.startswith("`choose_strategy('auto')` timed out") and "unset" in finding.fix


@pytest.mark.parametrize(
    "machine,changes,severity,problem",
    [
        (TPU_VM, {}, "failure", "sees none of them"),
        (LAPTOP, {"working_replicas": 0}, "failure", "wrong products"),
        (replace(LAPTOP, nvidia=True), {}, "warning", "NVIDIA"),
        (LAPTOP, {}, None, None),
        (TPU_VM, {"strategy": "TPUStrategy", "replicas": 4, "working_replicas": 4}, None, None),
    ],
)
def test_results(machine, changes, severity, problem):
    findings = list(check_results(machine, {**RESULTS, **changes}))
    assert [(finding.severity, problem in finding.problem) for finding in findings] == [(severity, True)] * bool(
        problem
    )


def test_the_probe_on_a_simulated_tpu(monkeypatch, capsys):
    """It builds the graph; running it fails, since there is no TPU."""
    monkeypatch.setattr("keras_vit.recipes.processes.strategies.choose_strategy", lambda name: simulated_tpu())
    monkeypatch.setattr(sys, "excepthook", sys.excepthook)
    with pytest.raises(tf.errors.OpError, match="TPUReplicate"):
        exec(PROBE, {})
    assert '"strategy": "TPUStrategy", "replicas": 2' in capsys.readouterr().out
