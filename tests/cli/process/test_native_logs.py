"""Log lines of native libraries on standard error."""

import os
import subprocess
import sys

import pytest

from keras_vit_cli.process.native_logs import without_native_logs

LOGS = b"""WARNING: All log messages before absl::InitializeLog() is called are written to STDERR
W0000 00:00:1795461019.812068     549 tf_tfl_flatbuffer_helpers.cc:364] Ignored output_format.
2026-11-23 19:10:05.782056: I tensorflow/core/util/port.cc:153] oneDNN custom operations are on.
INFO: Created TensorFlow Lite XNNPACK delegate for CPU.

"""
IMPORTS = "import os\nfrom keras_vit_cli.process.native_logs import without_native_logs"
ERROR = b"E0000 00:00:1795461019.812068     549 delegate.cc:36] The delegate failed.\n"


def test_log_lines_are_left_out_and_errors_stay(capfd):
    with pytest.raises(ValueError), without_native_logs():
        os.write(2, LOGS + ERROR)
        raise ValueError
    os.write(2, b"INFO: after\n")
    assert capfd.readouterr().err == ERROR.decode() + "INFO: after\n"


def test_the_reason_of_an_abort_is_printed():
    code = "with without_native_logs(): os.write(2, b'INFO: x\\nLLVM ERROR: out of memory\\n'); os.abort()"
    done = subprocess.run([sys.executable, "-c", f"{IMPORTS}\n{code}"], stderr=subprocess.PIPE)
    assert done.returncode < 0 and done.stderr == b"LLVM ERROR: out of memory\n"


def test_a_reader_that_has_gone_does_no_harm(tmp_path):
    """As with `2>&1 | head`."""
    lines = "with without_native_logs():\n    for _ in range(3): os.write(2, b'x\\n' * 9999)\nopen('done', 'w')"
    (tmp_path / "program.py").write_text(f"{IMPORTS}\n{lines}")
    subprocess.run(f"{sys.executable} program.py 2>&1 | true", shell=True, cwd=tmp_path, check=True)
    assert (tmp_path / "done").exists()
