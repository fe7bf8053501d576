"""A missing or full folder of temporary files is reported before a command starts, and by the doctor."""

import tempfile

import pytest

from keras_vit_cli.doctor.known_problems import temporary_files
from keras_vit_cli.doctor.machine import Machine, this_machine
from keras_vit_cli.main import main
from keras_vit_cli.process.temporary_folder import temporary_folder_problem


class FullFile:
    """A file on a full disk: small writes fit into a buffer, flushing them fails, as with /dev/full."""

    def __init__(self, dir):
        self.file = open("/dev/full", "wb")

    def __enter__(self):
        return self.file

    def __exit__(self, *_):
        self.file.raw.close()


@pytest.fixture(params=["missing", "full"])
def unusable(request, tmp_path, monkeypatch):
    """What the message about an unusable folder says."""
    if request.param == "missing":
        monkeypatch.setenv("TMPDIR", str(tmp_path / "none"))
        return f"{tmp_path}/none does not exist"
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    monkeypatch.setattr(tempfile, "TemporaryFile", FullFile)
    return f"{tmp_path} cannot be written: No space left on device"


def test_commands_do_not_start(unusable, capsys):
    assert main(["train"]) == 1
    out, error = capsys.readouterr()
    assert not out and error == (
        f"keras-vit: The folder of temporary files {unusable}. Free some space there, or set TMPDIR to another folder: "
        "export TMPDIR=/path\n"
    )


def test_doctor_reports_it(unusable):
    (finding,) = temporary_files(this_machine())
    assert finding.severity == "failure" and unusable in finding.problem and "export TMPDIR" in finding.fix


def test_usable_folder(tmp_path, monkeypatch):
    for name in ("TMPDIR", "TEMP", "TMP"):
        monkeypatch.delenv(name, raising=False)
    assert temporary_folder_problem() is None
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    assert temporary_folder_problem() is None and not list(tmp_path.iterdir())
    assert list(temporary_files(Machine())) == []
