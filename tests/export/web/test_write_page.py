"""The files of the page, and invalid arguments. test_page_in_browser.py runs the page."""

import json

import keras
import pytest
import tensorflow as tf
from scenes import encoded, scene

from keras_vit import Preprocessing
from keras_vit.export.web import page
from keras_vit.export.web.page import write_web_page

NAMES = ["a", "b", "c"]


@pytest.fixture
def exported(tmp_path, monkeypatch):
    """Writes a file with a signature; LiteRT.js is not downloaded."""
    monkeypatch.setattr(page, "fetch_web_runtime", lambda: None)
    monkeypatch.setattr(page, "unpack_web_runtime", lambda folder: None)

    def export(name="classify", dtype=tf.float32, image_size=(8, 8)):
        def function(images):
            return {"probabilities": tf.reduce_mean(tf.cast(images, tf.float32), (1, 2))}

        archive = keras.export.ExportArchive()
        spec = tf.TensorSpec((1, 8, 8, 3), dtype, name="images")
        archive.add_endpoint(name, function, input_signature=[spec])
        archive.write_out(tmp_path / "saved", verbose=False)
        content = tf.lite.TFLiteConverter.from_saved_model(str(tmp_path / "saved"), signature_keys=[name]).convert()
        (tmp_path / "model.tflite").write_bytes(content)
        (tmp_path / "preprocessing.json").write_text(json.dumps(Preprocessing(image_size).get_config()))
        return tmp_path / "model.tflite"

    return export


def test_files_and_settings(exported, tmp_path):
    for folder in ("first", "second"):
        (tmp_path / folder).mkdir()
        (tmp_path / folder / "a #1.PNG").write_bytes(encoded(scene(1), "PNG"))
    examples = sorted(tmp_path.glob("*/*.PNG"))
    names = [("n1", "one"), ("n2", "</script>"), "drei, ä"]
    folder = write_web_page(exported(), tmp_path / "site" / "demo", names, examples)
    assert folder == tmp_path / "site" / "demo" and folder.stat().st_mode & 0o777 == 0o755
    settings = json.loads((folder / "settings.json").read_text())
    assert settings["class_names"] == ["one", "</script>", "drei, ä"]
    assert Preprocessing(**settings["preprocessing"]) == Preprocessing((8, 8))
    assert [example["name"] for example in settings["examples"]] == ["a #1", "a #1"]
    assert all((folder / example["file"]).read_bytes() == examples[0].read_bytes() for example in settings["examples"])
    assert set(settings["signatures"]) == {"classify"}
    files = "camera.js examples index.html litert-license.txt main.js model.js model.tflite overlay.js pixels.js "
    assert {file.name for file in folder.iterdir()} == {*files.split(), "settings.json", "style.css"}


@pytest.mark.slow
def test_invalid_arguments(exported, tmp_path):
    model, target = exported(), tmp_path / "demo"
    with pytest.raises(ValueError, match="3 classes. Received: 2 names"):
        write_web_page(model, target, NAMES[:2])
    for name, error in (("notes.txt", ValueError), ("missing.jpg", FileNotFoundError)):
        with pytest.raises(error, match=name):
            write_web_page(model, target, NAMES, [tmp_path / name])
    with pytest.raises(ValueError, match=r"shape \(1, 8, 8, 3\), but preprocessing.json .*\(1, 16, 8, 3\)"):
        write_web_page(exported(image_size=(16, 8)), target, NAMES)
    with pytest.raises(ValueError, match="has no signature 'classify'. Received: embed"):
        write_web_page(exported("embed"), target, NAMES)
    with pytest.raises(ValueError, match="'images' is int8"):
        write_web_page(exported(dtype=tf.int8), target, NAMES)
    model.write_bytes(b"no model")
    with pytest.raises(ValueError, match="is not a .tflite file that LiteRT can read"):
        write_web_page(model, target, NAMES)
    (tmp_path / "preprocessing.json").write_text('{"size": 8}')
    with pytest.raises(ValueError, match="preprocessing.json has no preprocessing of this version"):
        write_web_page(model, target, NAMES)
    (tmp_path / "preprocessing.json").unlink()
    with pytest.raises(
        FileNotFoundError, match=r"preprocessing.json does not exist. A web page requires the .tflite file"
    ):
        write_web_page(model, target, NAMES)
    assert not target.exists() and not list(tmp_path.glob(".demo*"))


def test_existing_folder_is_not_overwritten(exported, tmp_path):
    (tmp_path / "demo").mkdir()
    with pytest.raises(ValueError, match="already exists"):
        write_web_page(exported(), tmp_path / "demo", NAMES)
    assert not list((tmp_path / "demo").iterdir())


def test_failure_leaves_nothing(exported, tmp_path, monkeypatch):
    model = exported()
    monkeypatch.setattr(page, "unpack_web_runtime", lambda folder: 1 / 0)
    with pytest.raises(ZeroDivisionError):
        write_web_page(model, tmp_path / "sites" / "demo", NAMES)
    assert not list((tmp_path / "sites").iterdir())
