"""`keras-vit doctor`: can this machine train, and if not, what to do.

Standard library only: on a broken installation, importing TensorFlow or Keras may hang or abort the process.
"""

import json
import platform
import signal
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass

from keras_vit_cli.commands.doctor.checks import (
    CHECKS,
    OLDER_LIBTPU,
    PACKAGES,
    TENSORFLOWS,
    Finding,
    Machine,
    this_machine,
)

TIMEOUT_S = 180
# Each stage prints its result, so that a stage that hangs is known by the results before it.
PROBE = """
import json, sys
def report(**values): print("RESULT" + json.dumps(values), flush=True)
sys.excepthook = lambda kind, error, trace: report(error=f"{kind.__name__}: {str(error)[:500]}")
import tensorflow as tf
report(version=tf.__version__, physical_devices=[device.name for device in tf.config.list_physical_devices()])
from keras_vit.recipes.processes.strategies import choose_strategy
strategy = choose_strategy("auto")
is_tpu = isinstance(strategy, tf.distribute.TPUStrategy)
report(strategy="TPUStrategy" if is_tpu else type(strategy).__name__.lstrip("_"),
    replicas=strategy.num_replicas_in_sync,
    logical_devices=[device.name for device in tf.config.list_logical_devices()])
if type(strategy).__name__ == "JaxDevices":  # JAX itself runs on these devices
    report(working_replicas=strategy.num_replicas_in_sync)
    sys.exit()
# Named functions: a TPU's graph does not accept the name of a lambda.
def product(): return tf.reduce_sum(tf.ones((128, 128)) @ tf.ones((128, 128)))
def products(): return strategy.run(product)
sums = strategy.experimental_local_results(tf.function(products)())
report(working_replicas=sum(float(value) == 128**3 for value in sums))
"""
STAGES = {
    "version": "import tensorflow",
    "strategy": "choose_strategy('auto')",
    "working_replicas": "a matrix product on every replica",
}


@dataclass(frozen=True)
class Doctor:
    """Diagnose this machine and suggest fixes.

    Prints versions, devices and the strategy that a recipe would use. The exit status is 1 if a problem would prevent
    training.
    """

    def run(self) -> int:
        """Examines the machine, runs TensorFlow in a separate process, and prints the findings.

        What needs no other process is printed first, because starting TensorFlow takes seconds.
        """
        machine = this_machine()
        print(machine_report(machine), flush=True)
        findings = [finding for check in CHECKS for finding in check(machine)]
        results: dict = {}
        if any(name in machine.versions for name in TENSORFLOWS):
            print(f"Starting TensorFlow (timeout: {TIMEOUT_S} s) ...", file=sys.stderr)
            results = run_probe(machine)
            findings += check_results(machine, results)
        print(findings_report(machine, results, findings))
        return int(any(finding.severity == "failure" for finding in findings))


def machine_report(machine: Machine) -> str:
    """Versions and hardware as text."""
    rows = {"python": platform.python_version()} | {name: machine.versions.get(name, "-") for name in PACKAGES}
    chips = f"{len(machine.tpu_chips)} x {machine.tpu_chips[0]}" if machine.tpu_chips else "none"
    disks = ", ".join(f"{free / 1e9:,.0f} GB free in {folder}" for folder, free in machine.free_bytes.items())
    hardware = {
        "host": f"{machine.cpu_cores} CPU cores, {machine.memory_bytes / 1e9:,.0f} GB of memory; {disks}",
        "TPU chips": chips,
        "Keras backend": machine.backend,
    }
    return "\n".join([*_table(rows), "", *_table(hardware)])


def findings_report(machine: Machine, results: dict, findings: list[Finding]) -> str:
    """Devices, strategy and findings as text; `results` are those of `run_probe`, {} without TensorFlow."""
    lines = [*_table(_tensorflow_rows(machine, results)), ""]
    for finding in findings:
        lines += [f"{finding.severity.upper():<9}{finding.problem}", f"{'':<9}-> {finding.fix}"]
    return "\n".join(lines + ([] if findings else ["No problems found."]))


def _tensorflow_rows(machine, results) -> dict[str, str]:
    rows = {}
    if "version" in results:
        rows["physical devices"] = ", ".join(results["physical_devices"])
    if "strategy" in results:
        rows["logical devices"] = ", ".join(results["logical_devices"])
        rows["strategy auto"] = f"{results['strategy']}, replicas: {results['replicas']}"
        if machine.environment.get("TF_CONFIG") and results["strategy"] != "TPUStrategy":
            rows["strategy auto"] = "multi-worker, because TF_CONFIG is set; not tested here"
    if "working_replicas" in results:
        rows["working replicas"] = str(results["working_replicas"])
    return rows


def _table(rows: dict[str, str]) -> list[str]:
    return [f"{name:<20}{value}" for name, value in rows.items()]


def run_probe(machine: Machine, code: str = PROBE, timeout_s: float = TIMEOUT_S) -> dict:
    """Runs the probe; returns its results.

    Returns:
        The values that `PROBE` reports, up to the stage that failed. "exit_status": None after the timeout. "stderr":
        the last three lines, if the probe failed.
    """
    # With TF_CONFIG workers would wait for each other. Without chips, libtpu would query a metadata server for minutes.
    environment = {name: value for name, value in machine.environment.items() if name != "TF_CONFIG"}
    if not machine.tpu_chips:
        environment["TPU_SKIP_MDS_QUERY"] = "1"
    with tempfile.TemporaryFile("w+") as output, tempfile.TemporaryFile("w+") as errors:
        process = subprocess.Popen([sys.executable, "-c", code], env=environment, stdout=output, stderr=errors)
        try:
            status = process.wait(timeout_s)
        except subprocess.TimeoutExpired:
            status = None
        finally:
            process.kill()
            process.wait()
        output.seek(0)
        errors.seek(0)
        return read_results(output, errors, status)


def read_results(output, errors, status: int | None) -> dict:
    """The result of `run_probe` from the lines that the probe printed."""
    results: dict = {}
    for line in output:
        if line.startswith("RESULT") and line.endswith("\n"):  # a killed process may leave half a line
            results |= json.loads(line.removeprefix("RESULT"))
    last_lines = [line.strip() for line in errors if line.strip()][-3:]
    return results | {"exit_status": status, "stderr": last_lines if status != 0 else []}


def check_results(machine: Machine, results: dict) -> Iterator[Finding]:
    """Problems in the results of `run_probe`."""
    failed_stage = next((text for name, text in STAGES.items() if name not in results), None)
    if failed_stage:
        yield _failure(machine, results, failed_stage)
        return
    if results["working_replicas"] != results["replicas"]:
        yield Finding("failure", "A replica computes wrong products.", "Try another machine; this one is broken")
    if machine.tpu_chips and results["strategy"] not in ("TPUStrategy", "JaxDevices") and not machine.tpu_lock:
        yield Finding(
            "failure",
            f"Found {len(machine.tpu_chips)} TPU chips, but TensorFlow sees none of them.",
            "Fix the issues above; then see docs/tpu_errors.md",
        )
    sees_gpu = any("GPU" in device for device in results["physical_devices"])
    if machine.nvidia and not sees_gpu and not machine.trains_on_jax:
        yield Finding(
            "warning",
            "There is an NVIDIA GPU, but TensorFlow does not see it.",
            "pip install 'tensorflow[and-cuda]>=2.20,<2.21'; check CUDA_VISIBLE_DEVICES",
        )


def _failure(machine, results, stage) -> Finding:
    status = results["exit_status"]
    message = results.get("error") or " ".join(results["stderr"][-1:])
    message = f" Message: {message}" if message else ""
    if status is None:
        return Finding(
            "failure",
            f"`{stage}` timed out after {TIMEOUT_S} s.{message}",
            "Does another process use the TPU, or is this one host of a slice (docs/tpu.md)? Without a TPU: unset "
            "TPU_NAME, export TPU_SKIP_MDS_QUERY=1",
        )
    fix = "Fix the issues above; see docs/tpu.md; or create a new environment with one pip install for all packages"
    if status < 0:
        if "tensorflow-tpu" in machine.versions:
            fix = OLDER_LIBTPU
        return Finding("failure", f"`{stage}` was killed by {signal.Signals(-status).name}.{message}", fix)
    return Finding("failure", f"`{stage}` failed.{message}", fix)
