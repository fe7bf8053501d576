"""The files of the page, and invalid arguments. test_page_in_browser.py runs the page."""

import re

import keras
import pytest
import tensorflow as tf
from scenes import encoded, scene

from keras_vit import Preprocessing
from keras_vit.export.tflite.description import Description
from keras_vit.export.tflite.metadata import read_description, with_metadata
from keras_vit.export.web import page
from keras_vit.export.web.page import write_web_page

NAMES = ("a", "b", "c")
FIELDS = Preprocessing((8, 8)).get_config()


@pytest.fixture
def exported(tmp_path, monkeypatch):
    """Writes a file with a signature; LiteRT.js is not downloaded."""
    monkeypatch.setattr(page, "fetch_web_runtime", lambda: None)
    monkeypatch.setattr(page, "unpack_web_runtime", lambda folder: None)

    def export(name="classify", dtype=tf.float32, preprocessing=FIELDS):
        def function(images):
            return {"probabilities": tf.cast(tf.reduce_mean(images, (1, 2)), dtype)}

        archive = keras.export.ExportArchive()
        archive.add_endpoint(name, function, input_signature=[tf.TensorSpec((1, 8, 8, 3), tf.float32, name="images")])
        archive.write_out(tmp_path / "saved", verbose=False)
        content = tf.lite.TFLiteConverter.from_saved_model(str(tmp_path / "saved"), signature_keys=[name]).convert()
        about = Description("toy", class_names=NAMES, preprocessing=preprocessing, license="CC0-1.0")
        (tmp_path / "file.tflite").write_bytes(with_metadata(content, about))
        return tmp_path / "file.tflite"

    return export


def test_files_and_names(exported, tmp_path):
    for folder in ("first", "second"):
        (tmp_path / folder).mkdir()
        (tmp_path / folder / 'a <"#1.PNG').write_bytes(encoded(scene(1), "PNG"))
    examples = sorted(tmp_path.glob("*/*.PNG"))
    names = [("n1", "one"), ("n2", "</script>"), "drei, ä"]
    folder = write_web_page(exported(), tmp_path / "site" / "demo", names, examples)
    assert folder == tmp_path / "site" / "demo" and folder.stat().st_mode & 0o777 == 0o755
    about = read_description(folder / "model.tflite").description
    assert about.class_names == ("one", "</script>", "drei, ä") and about.license == "CC0-1.0"
    buttons = re.findall(
        r'<button type="button"><img src="(.*)" alt="(.*)"></button>', (folder / "index.html").read_text()
    )
    assert [alt for _, alt in buttons] == ["Example: a &lt;&quot;#1"] * 2
    assert all((folder / file).read_bytes() == examples[0].read_bytes() for file, _ in buttons)
    files = (
        "camera.js examples index.html litert-license.txt main.js model.js model.tflite overlay.js pixels.js style.css"
    )
    assert {file.name for file in folder.iterdir()} == {*files.split()}
    plain = write_web_page(exported(), tmp_path / "plain")
    assert (plain / "model.tflite").read_bytes() == (tmp_path / "file.tflite").read_bytes()


@pytest.mark.slow
def test_invalid_arguments(exported, tmp_path, monkeypatch):
    model, target = exported(), tmp_path / "demo"

    def check(message, model=model, names=None, examples=(), error=ValueError):
        with pytest.raises(error, match=message):
            write_web_page(model, target, names, examples)

    check("3 classes. Received: 2 names", names=NAMES[:2])
    check("notes.txt", examples=[tmp_path / "notes.txt"])
    check("missing.jpg", examples=[tmp_path / "missing.jpg"], error=FileNotFoundError)
    check(r"\(1, 8, 8, 3\), .*\(1, 16, 8, 3\)", exported(preprocessing=Preprocessing((16, 8)).get_config()))
    check("Received: embed", exported("embed"))
    check("Received: probabilities .* int32", exported(dtype=tf.int32))
    check("no preprocessing", exported(preprocessing={"size": 8}))
    check("does not state", exported(preprocessing={}))
    model.write_bytes(b"no model")
    check("cannot be described")
    check("missing.tflite", tmp_path / "missing.tflite", error=FileNotFoundError)
    model = exported()
    monkeypatch.setattr(page, "unpack_web_runtime", lambda folder: 1 / 0)
    check("division", error=ZeroDivisionError)
    assert not target.exists() and not list(tmp_path.glob(".demo*"))
    target.mkdir()
    (target / "precious").write_text("x")
    check("already exists")
    assert [file.name for file in target.iterdir()] == ["precious"]
