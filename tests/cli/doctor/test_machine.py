import subprocess
import sys

from keras_vit_cli.doctor.known_problems import keras_version
from keras_vit_cli.doctor.machine import Machine, check_tpu_lock, find_tpu_chips, installed_versions


def test_a_package_with_empty_metadata_has_version_0(tmp_path, monkeypatch):
    (tmp_path / "keras-3.15.1.dist-info").mkdir()  # an interrupted pip leaves this
    (tmp_path / "keras-3.15.1.dist-info" / "METADATA").touch()
    monkeypatch.syspath_prepend(tmp_path)
    (finding,) = keras_version(Machine(installed_versions()))
    assert "Keras is 0, older" in finding.problem


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
