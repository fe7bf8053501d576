"""`keras-vit doctor`: can this machine train, and if not, what to do.

Standard library only: on a broken installation, importing TensorFlow or Keras may hang or abort the process.
"""

import json
import platform
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import asdict, dataclass

from keras_vit_cli.doctor.known_problems import CHECKS, Finding
from keras_vit_cli.doctor.machine import PACKAGES, TENSORFLOWS, Machine, this_machine
from keras_vit_cli.doctor.tensorflow_probe import TIMEOUT_S, check_results, run_probe


@dataclass(frozen=True)
class Doctor:
    """Diagnose this machine and suggest fixes.

    Prints versions, devices and the strategy that a recipe would use. The exit status is 1 if a problem would prevent
    training.

    Args:
        json: Print JSON.
    """

    json: bool = False

    def run(self) -> int:
        """Examines the machine, runs TensorFlow in a separate process, and prints the findings.

        What needs no other process is printed first, because starting TensorFlow takes seconds.
        """
        machine = this_machine()
        if not self.json:
            print(machine_report(machine), flush=True)
        findings = [finding for check in CHECKS for finding in check(machine)]
        findings += check_requirements(_pip_check())
        results: dict = {}
        if any(name in machine.versions for name in TENSORFLOWS) and not machine.temporary_problem:
            print(f"Starting TensorFlow (timeout: {TIMEOUT_S} s) ...", file=sys.stderr)
            results = run_probe(machine)
            findings += check_results(machine, results)
        print(_json_report(machine, results, findings) if self.json else findings_report(machine, results, findings))
        return int(any(finding.severity == "failure" for finding in findings))


def _pip_check() -> str:
    done = subprocess.run([sys.executable, "-m", "pip", "check"], capture_output=True, text=True)
    return done.stdout or done.stderr


def check_requirements(pip_check: str) -> Iterator[Finding]:
    """Version conflicts of `PACKAGES`, from the output of `pip check`; or that there is no pip, as after `uv venv`."""
    names = {name.replace("_", "-") for name in PACKAGES}
    if "No module named pip" in pip_check:
        fix = "Run `uv pip check`, or install pip"
        yield Finding("warning", "Versions were not compared: there is no pip here", fix)
    for line in pip_check.splitlines():
        if " has requirement " in line and line.split()[0] in names:
            fix = "Install a version that all packages allow, or use a new environment with one pip install for all"
            yield Finding("warning", line, fix)


def _json_report(machine, results, findings) -> str:
    parts = {name: value for name, value in asdict(machine).items() if name != "environment"}
    parts["versions"] = {"python": platform.python_version(), **parts["versions"]}
    return json.dumps({**parts, "tensorflow": results, "findings": [asdict(finding) for finding in findings]}, indent=2)


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
    """Devices, strategy and findings as text.

    Args:
        machine: The machine.
        results: Results of `run_probe`; {} without TensorFlow.
        findings: All problems.
    """
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
