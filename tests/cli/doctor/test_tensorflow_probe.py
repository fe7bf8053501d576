import sys
from dataclasses import replace

import pytest
import tensorflow as tf
from machines import LAPTOP, TPU_VM
from simulated_tpu import simulated_tpu

from keras_vit_cli.doctor.tensorflow_probe import PROBE, check_results, read_results, run_probe

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
    monkeypatch.setattr("keras_vit.recipes.distributed.choose_strategy", lambda name: simulated_tpu())
    monkeypatch.setattr(sys, "excepthook", sys.excepthook)
    with pytest.raises(tf.errors.OpError, match="TPUReplicate"):
        exec(PROBE, {})
    assert '"strategy": "TPUStrategy", "replicas": 2' in capsys.readouterr().out
