"""A missing or full folder of temporary files is reported before a command starts, and by the doctor."""

import tempfile

import pytest

from keras_vit_cli.doctor.known_problems import temporary_files
from keras_vit_cli.doctor.machine import Machine, this_machine
from keras_vit_cli.process.temporary_folder import temporary_folder_problem


class FullFile:
    """A file on a full disk: small writes fit into a buffer, flushing them fails, as with /dev/full."""

    def __init__(self, dir):
        self.file = open("/dev/full", "wb")

    def __enter__(self):
        return self.file

    def __exit__(self, *_):
        self.file.raw.close()


@pytest.mark.parametrize("name,problem", [("none", "does not exist"), ("", "No space left on device")])
def test_an_unusable_folder_stops_commands_and_is_found_by_the_doctor(name, problem, tmp_path, run_cli, monkeypatch):
    monkeypatch.setenv("TMPDIR", str(tmp_path / name))
    if not name:
        monkeypatch.setattr(tempfile, "TemporaryFile", FullFile)
    status, output, errors = run_cli("train")
    assert (status, output) == (1, "") and errors.startswith("keras-vit: ") and errors.count("\n") == 1
    assert str(tmp_path / name) in errors and problem in errors and "TMPDIR" in errors
    (finding,) = temporary_files(this_machine())
    assert finding.severity == "failure" and problem in finding.problem and "export TMPDIR" in finding.fix


def test_usable_folder(tmp_path, monkeypatch):
    for name in ("TMPDIR", "TEMP", "TMP"):
        monkeypatch.delenv(name, raising=False)
    assert temporary_folder_problem() is None
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    assert temporary_folder_problem() is None and not list(tmp_path.iterdir())
    assert list(temporary_files(Machine())) == []
