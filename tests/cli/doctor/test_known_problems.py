import re
from dataclasses import replace

import pytest
from machines import LAPTOP, TPU_VM

from keras_vit_cli.doctor.known_problems import CHECKS


def findings(machine):
    return [finding for check in CHECKS for finding in check(machine)]


JAX_VM = replace(
    LAPTOP, backend="jax", tpu_chips=("v5e",) * 4, versions={**LAPTOP.versions, "jax": "0.10.2", "libtpu": "0.0.51"}
)


@pytest.mark.parametrize("machine", [LAPTOP, TPU_VM, replace(TPU_VM, tpu_chips=("v3",) * 4, environment={}), JAX_VM])
def test_machines_without_problems(machine):
    assert findings(machine) == []


@pytest.mark.parametrize(
    "machine,versions,severity,problem,fix",
    [
        (
            TPU_VM,
            {"tensorflow": "2.20.0"},
            "failure",
            "tensorflow and tensorflow-tpu conflict: both are installed",
            "uninstall -y tens",
        ),
        (
            TPU_VM,
            {"tensorflow": "2.20.0", "tf-models-official": "2.20.0"},
            "failure",
            "models-official requires",
            "--no-deps",
        ),
        (TPU_VM, {"libtpu": "0.0.33"}, "failure", "libtpu is 0.0.33", "libtpu<=0.0.27"),
        (TPU_VM, {"libtpu": "0.0.100.dev1+nightly"}, "failure", "libtpu is 0.0.100", "libtpu<=0.0.27"),
        (TPU_VM, {"libtpu": None}, "failure", "without libtpu", "libtpu<=0.0.27"),
        (TPU_VM, {"tensorflow-tpu": None, "tensorflow": "2.20.0"}, "failure", "4 TPU chips .v5e.", "keras_vit.tpu"),
        (
            TPU_VM,
            {"tensorflow-tpu": None, "tensorflow-cpu": "2.20.0"},
            "failure",
            "4 TPU chips",
            "^pip uninstall -y tensorflow-cpu && pip install",
        ),
        (LAPTOP, {"tensorflow": None}, "failure", "TensorFlow is not installed", "keras_vit.tensorflow,recipes"),
        (LAPTOP, {"tensorflow": "2.22.0"}, "warning", "tensorflow is 2.22.0", "tensorflow>=2.20,<2.22"),
        (LAPTOP, {"tensorflow": "2.18.1"}, "warning", "tensorflow is 2.18.1", "tensorflow>=2.20,<2.22"),
        (LAPTOP, {"keras": "3.12.9"}, "failure", "older than 3.13", "keras>=3.13"),
        (LAPTOP, {"tensorflow-addons": "0.23.0"}, "warning", "tensorflow-addons was discontinued", "uninstall"),
        (LAPTOP, {"tensorflow-datasets": None}, "failure", "tensorflow-datasets is not installed", "keras_vit.recipes"),
    ],
)
def test_packages(machine, versions, severity, problem, fix):
    installed = {name: version for name, version in {**machine.versions, **versions}.items() if version}
    check_finding(replace(machine, versions=installed), severity, problem, fix)


@pytest.mark.parametrize(
    "machine,environment,severity,problem,fix",
    [
        (LAPTOP, {"TF_USE_LEGACY_KERAS": "1"}, "warning", "TF_USE_LEGACY_KERAS", "unset"),
        (LAPTOP, {"TPU_NAME": "local"}, "failure", "no TPU chip on this host", "unset TPU_NAME"),
        (
            TPU_VM,
            {"TPU_NAME": "my-tpu", **TPU_VM.environment},
            "warning",
            "'my-tpu'",
            "unset TPU_NAME.*TPU_LOAD_LIBRARY=0",
        ),
        (TPU_VM, {}, "warning", "v5e chips require PJRT", "NEXT_PLUGGABLE_DEVICE_USE_C_API=true"),
        (
            TPU_VM,
            {"TF_PLUGGABLE_DEVICE_LIBRARY_PATH": "/no"},
            "failure",
            "points to a missing file: /no",
            "get_library_path",
        ),
        (LAPTOP, {"GOOGLE_APPLICATION_CREDENTIALS": "/no"}, "failure", "points to a missing file: /no", "unset"),
        (
            LAPTOP,
            {"TF_CONFIG": "worker 0"},
            "failure",
            "TF_CONFIG does not name a worker.*JSONDecodeError",
            "export TF_CONFIG",
        ),
        (LAPTOP, {"TF_CONFIG": '{"cluster": {"worker": ["a:1"]}}'}, "failure", "KeyError: 'task'", "unset TF_CONFIG"),
        (replace(TPU_VM, tpu_chips=()), {}, "warning", "queries a metadata server for minutes", "TPU_SKIP_MDS_QUERY=1"),
    ],
)
def test_variables(machine, environment, severity, problem, fix):
    check_finding(replace(machine, environment=environment), severity, problem, fix)


@pytest.mark.parametrize(
    "changes,severity,problem,fix",
    [
        ({"backend": "jax"}, "failure", "backend of Keras is 'jax'", "KERAS_BACKEND=tensorflow"),
        (
            {"tpu_lock": "is locked by another process"},
            "failure",
            "in use: .* by another process",
            "rm -f /tmp/libtpu_lockfile",
        ),
        ({"free_bytes": {"/tmp": 9_000_000_000}}, "warning", "9.0 GB are free on the disk of /tmp", "gs://"),
        ({"free_bytes": {"/tmp": 10_000_000}}, "failure", "0.0 GB are free on the disk of /tmp", "gs://"),
    ],
)
def test_backend_lock_and_disk(changes, severity, problem, fix):
    check_finding(replace(LAPTOP, **changes), severity, problem, fix)


def check_finding(machine, severity, problem, fix):
    (finding,) = findings(machine)
    assert finding.severity == severity
    assert re.search(problem, finding.problem) and re.search(fix, finding.fix)


def test_correct_variables():
    config = '{"cluster": {"chief": ["a:1"], "worker": ["b:1"]}, "task": {"type": "worker", "index": "0"}}'
    pod = {"TPU_NAME": "my-pod", "TPU_LOAD_LIBRARY": "0"}
    for machine, environment in [(LAPTOP, {"TF_CONFIG": config}), (TPU_VM, pod), (replace(TPU_VM, tpu_chips=()), pod)]:
        assert findings(replace(machine, environment=environment)) == []
