"""Log lines of native libraries on standard error."""

import os

import pytest

from keras_vit_cli.process.native_logs import without_native_logs

LOGS = b"""WARNING: All log messages before absl::InitializeLog() is called are written to STDERR
W0000 00:00:1795461019.812068     549 tf_tfl_flatbuffer_helpers.cc:364] Ignored output_format.
2026-11-23 19:10:05.782056: I tensorflow/core/util/port.cc:153] oneDNN custom operations are on.
INFO: Created TensorFlow Lite XNNPACK delegate for CPU.

"""
ERROR = b"E0000 00:00:1795461019.812068     549 delegate.cc:36] The delegate failed.\n"


def test_log_lines_are_left_out_and_errors_stay(capfd):
    with pytest.raises(ValueError), without_native_logs():
        os.write(2, LOGS + ERROR)
        raise ValueError
    os.write(2, b"INFO: after\n")
    assert capfd.readouterr().err == ERROR.decode() + "INFO: after\n"
