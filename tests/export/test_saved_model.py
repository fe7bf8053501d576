import json

import numpy as np
import pytest
import tensorflow as tf

from keras_vit import BiT, Preprocessing
from keras_vit.export import write_saved_model


def test_signature_gives_keras_probabilities_for_any_batch(artefacts, classifier, pictures):
    loaded = tf.saved_model.load(str(artefacts["saved_model"]))
    assert set(loaded.signatures) == {"classify", "serving_default"}
    for count in (1, 7):
        images = pictures[0][:count]
        expected = tf.nn.softmax(classifier(images))
        for signature in loaded.signatures.values():
            np.testing.assert_allclose(signature(images=images)["probabilities"], expected, atol=1e-5)


def test_dropout_is_off(artefacts, pictures):
    classify = tf.saved_model.load(str(artefacts["saved_model"])).signatures["classify"]
    images = pictures[0][:5]
    np.testing.assert_array_equal(classify(images=images)["probabilities"], classify(images=images)["probabilities"])


def test_a_mixed_precision_model_gives_float32(toy, tmp_path):
    folder = write_saved_model(toy(dtype="mixed_bfloat16"), tmp_path / "model")
    classify = tf.saved_model.load(str(folder)).signatures["classify"]
    output = classify(images=np.zeros((2, 16, 16, 3), "float32"))["probabilities"]
    assert output.dtype == tf.float32
    np.testing.assert_allclose(output, 0.2, atol=1e-6)


def test_what_is_there_is_not_overwritten(toy, tmp_path):
    (tmp_path / "model").mkdir()
    (tmp_path / "model" / "precious").write_text("x")
    with pytest.raises(ValueError, match="exists already"):
        write_saved_model(toy(), tmp_path / "model")
    assert (tmp_path / "model" / "precious").read_text() == "x"


def test_a_failed_export_leaves_nothing(toy, tmp_path, monkeypatch):
    monkeypatch.setattr(tf.saved_model, "save", lambda *args, **kwargs: 1 / 0)
    with pytest.raises(ZeroDivisionError):
        write_saved_model(toy(), tmp_path / "model")
    assert not list(tmp_path.iterdir())


def test_preprocessing_travels_along(toy, tmp_path):
    pictures = Preprocessing((16, 16), resize="shortest", crop_fraction=0.875, mean=(0.4, 0.5, 0.6))
    folder = write_saved_model(toy(preprocessing=pictures), tmp_path / "model")
    fields = json.loads((folder / "assets.extra" / "preprocessing.json").read_text())
    assert Preprocessing(**fields) == pictures


def test_a_bit_of_any_size_must_say_one(tmp_path):
    model = BiT(stages=(1,), width_factor=0.5, num_classes=5)
    with pytest.raises(ValueError, match=r"model.resized\(224\)"):
        write_saved_model(model, tmp_path / "model")
    folder = write_saved_model(model.resized(32), tmp_path / "model")
    classify = tf.saved_model.load(str(folder)).signatures["classify"]
    np.testing.assert_allclose(classify(images=np.zeros((2, 32, 32, 3), "float32"))["probabilities"], 0.2, atol=1e-6)


@pytest.mark.parametrize("changes", [{"num_classes": 0}, {"pooling": "none"}])
def test_only_classifiers(toy, tmp_path, changes):
    with pytest.raises(ValueError, match="Only a classifier can be exported"):
        write_saved_model(toy(**changes), tmp_path / "model")
