import pytest


@pytest.mark.slow
def test_output_may_be_a_folder(trained_toy, folder, tmp_path, run_cli):
    trained_toy(depth=1).save(tmp_path / "x.keras")
    command = ["inspect", tmp_path / "x.keras", "--images", folder, "--output", tmp_path / "new", "--max-images", 2]
    assert run_cli(*command)[0] == 0
    assert [path.name for path in (tmp_path / "new").iterdir()] == ["inspect.html"]
    status, _, errors = run_cli(*command)
    assert status == 1 and "inspect.html already exists" in errors


def test_unreadable_images_are_named(run, trained_toy, folder, tmp_path, monkeypatch):
    monkeypatch.setattr(
        "keras_vit_cli.commands.inspect.report.make_report", lambda *_: pytest.fail("the model was inspected")
    )
    for image in [path for path in folder.rglob("*") if path.suffix in (".jpg", ".png")]:
        image.write_text("no image")
    status, _, _, errors = run(trained_toy(depth=1))
    assert status == 1 and "None of the 10 files" in errors and "0.png" in errors and not (tmp_path / "out").exists()
