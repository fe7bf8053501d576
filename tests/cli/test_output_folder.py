import pytest

from keras_vit_cli.main import main


@pytest.mark.parametrize("command", [["demo"], ["export", "NAME", "--formats", "float32"]])
def test_a_training_run_is_never_replaced(tmp_path, capsys, command):
    names = ["metrics.json", "model.keras", "step-10.index"]
    for name in names:
        (tmp_path / name).write_text("x")
    assert main([*command, "--output", str(tmp_path)]) == 1
    assert "is not empty" in capsys.readouterr().err
    assert sorted(file.name for file in tmp_path.iterdir()) == names
