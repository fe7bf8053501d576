"""What is refused before a folder is written. What a good one does is in test_web_demo.py."""

import json

import keras
import pytest
import tensorflow as tf
from scenes import encoded, scene

from keras_vit import Preprocessing
from keras_vit.export.web import folder as web_demo
from keras_vit.export.web.folder import write_web_demo

LABELS = ["a", "b", "c"]


@pytest.fixture
def exported(tmp_path, monkeypatch):
    """Writes a file with the given signature; nothing is fetched."""
    monkeypatch.setattr(web_demo, "fetch_web_runtime", lambda: None)
    monkeypatch.setattr(web_demo, "unpack_web_runtime", lambda folder: None)

    def export(name="classify", into=tf.float32, image_size=(8, 8)):
        def answer(images):
            return {"probabilities": tf.reduce_mean(tf.cast(images, tf.float32), (1, 2))}

        archive = keras.export.ExportArchive()
        spec = tf.TensorSpec((1, 8, 8, 3), into, name="images")
        archive.add_endpoint(name, answer, input_signature=[spec])
        archive.write_out(tmp_path / "saved", verbose=False)
        content = tf.lite.TFLiteConverter.from_saved_model(str(tmp_path / "saved"), signature_keys=[name]).convert()
        (tmp_path / "model.tflite").write_bytes(content)
        (tmp_path / "preprocessing.json").write_text(json.dumps(Preprocessing(image_size).get_config()))
        return tmp_path / "model.tflite"

    return export


def test_settings_of_the_page(exported, tmp_path):
    for folder in ("first", "second"):
        (tmp_path / folder).mkdir()
        (tmp_path / folder / "a #1.PNG").write_bytes(encoded(scene(1), "PNG"))
    examples = sorted(tmp_path.glob("*/*.PNG"))
    labels = [("n1", "one"), ("n2", "</script>"), "drei, ä"]
    folder = write_web_demo(exported(), tmp_path / "site" / "demo", labels, examples)
    assert folder == tmp_path / "site" / "demo" and folder.stat().st_mode & 0o777 == 0o755
    settings = json.loads((folder / "demo.json").read_text())
    assert settings["labels"] == ["one", "</script>", "drei, ä"]
    assert Preprocessing(**settings["preprocessing"]) == Preprocessing((8, 8))
    assert [example["name"] for example in settings["examples"]] == ["a #1", "a #1"]
    assert all((folder / example["file"]).read_bytes() == examples[0].read_bytes() for example in settings["examples"])
    assert set(settings["signatures"]) == {"classify"}
    assert {"index.html", "demo.js", "demo.css", "model.tflite", "litert-license.txt"} <= {
        p.name for p in folder.iterdir()
    }


def test_what_the_page_cannot_run_is_refused(exported, tmp_path):
    model, target = exported(), tmp_path / "demo"
    with pytest.raises(ValueError, match="3 classes. Received: 2 labels"):
        write_web_demo(model, target, LABELS[:2])
    for name, error in (("notes.txt", ValueError), ("missing.jpg", FileNotFoundError)):
        with pytest.raises(error, match=name):
            write_web_demo(model, target, LABELS, [tmp_path / name])
    with pytest.raises(ValueError, match=r"shape \(1, 8, 8, 3\), but preprocessing.json .* \(1, 16, 8, 3\)"):
        write_web_demo(exported(image_size=(16, 8)), target, LABELS)
    with pytest.raises(ValueError, match="has no signature 'classify'. It has: embed"):
        write_web_demo(exported("embed"), target, LABELS)
    with pytest.raises(ValueError, match="'images' is int8"):
        write_web_demo(exported(into=tf.int8), target, LABELS)
    model.write_bytes(b"no model")
    with pytest.raises(ValueError, match="is not a .tflite file that LiteRT can read"):
        write_web_demo(model, target, LABELS)
    (tmp_path / "preprocessing.json").write_text('{"size": 8}')
    with pytest.raises(ValueError, match="preprocessing.json is not what an export writes"):
        write_web_demo(model, target, LABELS)
    (tmp_path / "preprocessing.json").unlink()
    with pytest.raises(FileNotFoundError, match=r"preprocessing.json. A demo needs the .tflite file"):
        write_web_demo(model, target, LABELS)
    assert not target.exists() and not list(tmp_path.glob(".demo*"))


def test_a_folder_that_exists_is_left_alone(exported, tmp_path):
    (tmp_path / "demo").mkdir()
    with pytest.raises(ValueError, match="exists already"):
        write_web_demo(exported(), tmp_path / "demo", LABELS)
    assert not list((tmp_path / "demo").iterdir())


def test_a_failure_leaves_nothing(exported, tmp_path, monkeypatch):
    model = exported()
    monkeypatch.setattr(web_demo, "unpack_web_runtime", lambda folder: 1 / 0)
    with pytest.raises(ZeroDivisionError):
        write_web_demo(model, tmp_path / "sites" / "demo", LABELS)
    assert not list((tmp_path / "sites").iterdir())
