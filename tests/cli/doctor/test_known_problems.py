from dataclasses import replace

import pytest
from machines import LAPTOP, TPU_VM

from keras_vit_cli.doctor.known_problems import CHECKS

JAX_VM = replace(
    LAPTOP, backend="jax", tpu_chips=("v5e",) * 4, versions={**LAPTOP.versions, "jax": "0.10.2", "libtpu": "0.0.51"}
)
NO_CHIPS = replace(TPU_VM, tpu_chips=(), environment={})
WORKER = '{"cluster": {"chief": ["a:1"], "worker": ["b:1"]}, "task": {"type": "worker", "index": "0"}}'


def findings(machine):
    return [finding for check in CHECKS for finding in check(machine)]


@pytest.mark.parametrize(
    "machine",
    [
        LAPTOP,
        TPU_VM,
        replace(TPU_VM, tpu_chips=("v3",) * 4, environment={}),
        JAX_VM,
        replace(LAPTOP, environment={"TF_CONFIG": WORKER}),
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
    (TPU_VM, {"tensorflow-tpu": None, "tensorflow": "2.20.0"}, "failure", "4 TPU chips (v5e)", "keras_vit[tpu"),
    (TPU_VM, {"tensorflow-tpu": None, "tensorflow-cpu": "2.20.0"}, "failure", "4 TPU", "uninstall -y tensorflow-cpu"),
    (LAPTOP, {"tensorflow": None}, "failure", "TensorFlow", "keras_vit[tensorflow,recipes"),
    (LAPTOP, {"tensorflow": "2.22.0"}, "warning", "2.22.0", "tensorflow>=2.20,<2.22"),
    (LAPTOP, {"tensorflow": "2.18.1"}, "warning", "2.18.1", "tensorflow>=2.20,<2.22"),
    (LAPTOP, {"keras": "3.12.9"}, "failure", "3.13", "keras>=3.13"),
    (LAPTOP, {"tensorflow-addons": "0.23.0"}, "warning", "tensorflow-addons", "uninstall"),
    (LAPTOP, {"tensorflow-datasets": None}, "failure", "tensorflow-datasets", "keras_vit[recipes"),
    (LAPTOP, {"TF_USE_LEGACY_KERAS": "1"}, "warning", "TF_USE_LEGACY_KERAS", "unset"),
    (LAPTOP, {"TPU_NAME": "local"}, "failure", "no TPU chip", "unset TPU_NAME"),
    (TPU_VM, {"TPU_NAME": "my-tpu", **TPU_VM.environment}, "warning", "'my-tpu'", "TPU_LOAD_LIBRARY=0"),
    (replace(TPU_VM, environment={}), {}, "warning", "PJRT", "NEXT_PLUGGABLE_DEVICE_USE_C_API=true"),
    (TPU_VM, {"TF_PLUGGABLE_DEVICE_LIBRARY_PATH": "/no"}, "failure", "/no", "get_library_path"),
    (LAPTOP, {"GOOGLE_APPLICATION_CREDENTIALS": "/no"}, "failure", "/no", "unset"),
    (LAPTOP, {"TF_CONFIG": "worker 0"}, "failure", "JSONDecodeError", "export TF_CONFIG"),
    (LAPTOP, {"TF_CONFIG": '{"cluster": {"worker": ["a:1"]}}'}, "failure", "KeyError: 'task'", "unset TF_CONFIG"),
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
