import json
import subprocess
import sys
from dataclasses import replace

import pytest
from machines import LAPTOP, TPU_VM

from keras_vit_cli.doctor.command import Doctor, check_requirements, findings_report, machine_report


@pytest.mark.slow
def test_this_machine(monkeypatch, capsys):
    for name in ("TPU_NAME", "TF_CONFIG", "KERAS_BACKEND"):
        monkeypatch.delenv(name, raising=False)
    status = Doctor(json=True).run()
    found = json.loads(capsys.readouterr().out)
    assert found["versions"]["tensorflow"] == found["tensorflow"]["version"]
    assert found["tensorflow"]["replicas"] == found["tensorflow"]["working_replicas"] == 1
    assert found["cpu_cores"] >= 1 and found["memory_bytes"] > 1e8
    assert status == any(finding["severity"] == "failure" for finding in found["findings"])


def test_version_conflicts():
    (finding,) = check_requirements(
        "tensorflow 2.20.0 has requirement protobuf>=5.28.0, but you have protobuf 4.25.3.\n"
        "unrelated 1.0 has requirement numpy<1, but you have numpy 2.4.6.\n"
    )
    assert finding.severity == "warning" and "but you have protobuf 4.25.3" in finding.problem
    assert not list(check_requirements("No broken requirements found.\n"))
    (finding,) = check_requirements("/venv/bin/python: No module named pip\n")
    assert finding.severity == "warning" and "pip" in finding.problem


def test_text_reports():
    results = {"version": "2.20.0", "physical_devices": ["CPU:0"], "logical_devices": ["CPU:0"]}
    results |= {"strategy": "DefaultDistributionStrategy", "replicas": 1, "working_replicas": 1}
    assert "DefaultDistributionStrategy, replicas: 1\n" in findings_report(LAPTOP, results, [])
    assert "multi-worker" in findings_report(replace(TPU_VM, environment={"TF_CONFIG": "{}"}), results, [])
    assert "4 x v5e" in machine_report(TPU_VM)


def test_nothing_but_the_standard_library_is_imported():
    packages = "{'keras', 'keras_vit', 'tensorflow', 'numpy', 'tyro'}"
    code = f"import sys, keras_vit_cli.doctor.command\nassert not {packages} & set(sys.modules)"
    subprocess.run([sys.executable, "-c", code], check=True)
