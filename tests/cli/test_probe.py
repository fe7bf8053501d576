import pytest
from images_on_disk import jpeg

from keras_vit_cli.main import main
from keras_vit_cli.probe import Probe


@pytest.mark.parametrize("images,counts", [(100, (10, 20, 100)), (99, (10, 20)), (9, (1,))])
def test_default_neighbors_that_do_not_fit_are_skipped(images, counts, capsys):
    assert Probe("model.keras", "digits")._counts(images) == counts
    skipped = ", ".join(str(count) for count in (10, 20, 100) if count > images)
    note = f"Note: {skipped} neighbors are skipped: 'train' has {images} images.\n"
    assert capsys.readouterr().out == (note if skipped else "")


@pytest.mark.parametrize("command", ["probe", "few-shot"])
def test_a_single_class_is_an_error_before_the_model_is_loaded(command, run_cli, tmp_path, monkeypatch):
    for split in ("train", "test"):
        (tmp_path / "one" / split / "cat").mkdir(parents=True)
        (tmp_path / "one" / split / "cat" / "a.jpg").write_bytes(jpeg(9))
    monkeypatch.setattr("keras_vit.load", lambda *_, **__: pytest.fail("the model was loaded first"))
    data = f"folder:{tmp_path}/one"
    message = f"keras-vit: {data!r} has one class, 'cat': any model is right. Add other classes.\n"
    assert run_cli(command, "cifar10/R6_Ti_4", data) == (1, "", message)


@pytest.mark.slow
def test_accuracy_by_method(trained_toy, data_dir, tmp_path, capsys):
    trained_toy(image_size=8, patch_size=2, num_classes=10).save(tmp_path / "model.keras")
    arguments = ["probe", str(tmp_path / "model.keras"), "digits", "--data-dir", data_dir]
    arguments += ["--train-split", "train[:200]"]
    assert main([*arguments, "--test-split", "test[:50]", "--neighbors", "1", "20"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert lines[-4].startswith("200 training and 50 test images of digits, ")
    assert [line.split(":")[0] for line in lines[-3:]] == ["  1 nearest neighbors", " 20 nearest neighbors", "linear"]
    assert main([*arguments, "--neighbors", "201"]) == 1
    assert "between 1 and the 200 images of 'train[:200]'. Received: 201" in capsys.readouterr().err
