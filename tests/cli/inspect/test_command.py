import re

import pytest

from keras_vit_cli.main import main


def contents(folder):
    return {path: path.read_bytes() for path in folder.rglob("*") if path.is_file()}


@pytest.mark.slow
def test_output_may_be_a_folder(trained_toy, folder, tmp_path, capsys):
    trained_toy().save(tmp_path / "x.keras")
    command = ["inspect", str(tmp_path / "x.keras"), "--images", str(folder), "--output", str(tmp_path / "new")]
    assert main([*command, "--max-images", "2"]) == 0
    assert [path.name for path in (tmp_path / "new").iterdir()] == ["inspect.html"]
    assert main(command) == 1 and "inspect.html already exists" in capsys.readouterr().err


@pytest.mark.parametrize(
    "images,output,options,message",
    [
        ("no", "report.html", (), r"no does not exist\. Expected a folder of images, or an image"),
        ("empty", "report.html", (), r"No images in .*empty\. Supported extensions: \.jpg, "),
        ("images", "taken.html", (), r"taken\.html already exists\. Remove it or choose another --output"),
        ("images", "taken.html/report", (), r"taken\.html is a file, not a folder\. Choose another --output"),
        ("images", "report.html", ("--num-shown", 0), r"must be at least 1.*Received: 0, 128 and 8\.0"),
        ("images", "report.html", ("--max-megabytes", "nan"), r"above 0\. Received: 6, 128 and nan"),
        ("images", "report.html", ("--max-megabytes", "inf"), r"above 0\. Received: 6, 128 and inf"),
    ],
)
def test_wrong_options_are_reported_before_loading(run, tmp_path, images, output, options, message, monkeypatch):
    monkeypatch.setattr("keras_vit_cli.inspect.model.load", lambda _: pytest.fail("the model was loaded"))
    (tmp_path / "empty").mkdir()
    (tmp_path / "x.keras").touch()
    (tmp_path / "taken.html").write_text("mine")
    before = contents(tmp_path)
    status, _, _, errors = run(tmp_path / "x.keras", *options, images=tmp_path / images, output=tmp_path / output)
    assert status == 1 and re.search(message, errors), errors
    assert contents(tmp_path) == before


def test_unreadable_images_are_named(run, trained_toy, folder, tmp_path, monkeypatch):
    monkeypatch.setattr("keras_vit_cli.inspect.report.make_report", lambda *_: pytest.fail("the model was inspected"))
    for image in [path for path in folder.rglob("*") if path.suffix in (".jpg", ".png")]:
        image.write_text("no image")
    status, _, _, errors = run(trained_toy())
    assert status == 1 and re.search(r"None of the 10 files can be read as an image: .*0\.png", errors)
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize(
    "content,message", [(None, "There is no weights file"), (b"PK", "x.keras is not a .keras file")]
)
def test_missing_or_damaged_model(run, tmp_path, content, message):
    if content:
        (tmp_path / "x.keras").write_bytes(content)
    status, _, output, errors = run(tmp_path / "x.keras")
    assert status == 1 and message in errors and not output
    assert not (tmp_path / "out").exists()


@pytest.mark.slow
def test_full_disk(run, trained_toy, tmp_path, monkeypatch):
    def fail(*_, **__):
        raise OSError("the disk is full")

    monkeypatch.setattr("os.replace", fail)
    status, _, _, errors = run(trained_toy(), "--max-images", 2)
    assert status == 1 and "disk is full" in errors and not list((tmp_path / "out").iterdir())
