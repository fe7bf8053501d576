import keras
import pytest
import tensorflow as tf

from keras_vit.recipes.data import decoded_images, open_dataset
from keras_vit.recipes.evaluation.classification import evaluate_classifier
from keras_vit.recipes.evaluation.classification_metrics import ClassificationMetrics
from keras_vit.recipes.recipe import Data

pytestmark = pytest.mark.slow


@pytest.fixture
def digits(data_dir):
    return open_dataset(Data(dataset="digits", data_dir=data_dir))


@pytest.fixture
def model(trained_toy):
    return trained_toy(image_size=8, patch_size=2, num_classes=10, depth=1)


def test_metrics_of_all_images(model, digits):
    expected = ClassificationMetrics(10)
    for images, labels in decoded_images(digits, "test[:45]", 45):
        expected.update(model(model.preprocess(images)), labels)
    report = evaluate_classifier(model, digits, "test[:45]", batch_size=20)
    assert report.summary == pytest.approx(expected.summary(), rel=1e-4)
    assert report.per_class == expected.per_class("0123456789")
    assert sum(row["images"] for row in report.reliability) == 45
    assert report.preprocessing == model.preprocessing


def test_model_on_a_tpu_host_is_not_compiled_for_the_tpu(model, digits, monkeypatch):
    compiled, predict = [], keras.Model.predict_on_batch

    def predict_on_batch(self, x):
        compiled.append(self.jit_compile)
        return predict(self, x)

    chip = tf.config.PhysicalDevice("/physical_device:TPU:0", "TPU")
    monkeypatch.setattr(tf.config, "list_physical_devices", lambda kind=None: [chip] if kind in (None, "TPU") else [])
    monkeypatch.setattr(keras.Model, "predict_on_batch", predict_on_batch)
    evaluate_classifier(model, digits, "test[:45]", batch_size=20)
    assert compiled == [False] * 3
