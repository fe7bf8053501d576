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
def test_invalid_arguments(exported, tmp_path, monkeypatch):
    model, target, settings = exported(), tmp_path / "demo", tmp_path / "preprocessing.json"

    def check(message, model=model, names=NAMES, examples=(), error=ValueError):
        with pytest.raises(error, match=message):
            write_web_page(model, target, names, examples)

    check("3 classes. Received: 2 names", names=NAMES[:2])
    check("notes.txt", examples=[tmp_path / "notes.txt"])
    check("missing.jpg", examples=[tmp_path / "missing.jpg"], error=FileNotFoundError)
    check(r"\(1, 8, 8, 3\), .*\(1, 16, 8, 3\)", exported(image_size=(16, 8)))
    check("Received: embed", exported("embed"))
    check("'images' is int8", exported(dtype=tf.int8))
    model.write_bytes(b"no model")
    check("is not a .tflite file")
    settings.write_text('{"size": 8}')
    check("preprocessing.json")
    settings.unlink()
    check("preprocessing.json does not exist", error=FileNotFoundError)
    model = exported()
    monkeypatch.setattr(page, "unpack_web_runtime", lambda folder: 1 / 0)
    check("division", error=ZeroDivisionError)
    assert not target.exists() and not list(tmp_path.glob(".demo*"))
    target.mkdir()
    (target / "precious").write_text("x")
    check("already exists")
    assert [file.name for file in target.iterdir()] == ["precious"]
