import json

import pytest


@pytest.mark.slow
def test_table_and_json(tflite_files, tmp_path, run_cli):
    out = tmp_path / "out.json"
    options = ["--num-threads", 1, "--num-runs", 3, "--json", out]
    status, printed, _ = run_cli("benchmark", *tflite_files, *options)
    assert status == 0 and all(file.name in printed for file in tflite_files)
    assert "median ms" in printed
    results = json.loads(out.read_text())
    expected = [(str(file), 1, 3) for file in tflite_files]
    assert [(result["path"], result["num_threads"], result["num_runs"]) for result in results] == expected
    assert list(tmp_path.iterdir()) == [out]
