"""Other projects' models as ours: copies, precision, files, what is frozen, and whole classifiers."""

import json
import zipfile

import keras
import numpy as np
import pytest
from randomize import randomize

import keras_vit


@keras.saving.register_keras_serializable(package="other")
class Twice(keras.layers.Layer):
    """A layer of another project, whose parts have names that Keras counts, and arguments with names of ours."""

    def __init__(self, depth=3, **kwargs):
        super().__init__(**kwargs)
        self.depth, self.parts = depth, [keras.layers.Conv2D(4, 1, dtype=self.dtype_policy) for _ in range(2)]

    def build(self, shape):
        for part in self.parts:
            part.build(shape)

    def call(self, maps):
        return self.parts[0](maps) + 2 * self.parts[1](maps)

    def get_config(self):
        return {**super().get_config(), "depth": self.depth}


def backbone(size=None):
    """Maps (B, h, w, 4) of layers with the names of our head, with batch normalization and a random layer."""
    layers = [
        keras.layers.RandomFlip(),
        keras.layers.Conv2D(4, 3, name="head", use_bias=False),
        keras.layers.BatchNormalization(),
        Twice(),
    ]
    return keras.Sequential([keras.Input((size, size, 3)), *layers], name="other")


def classifier(**options):
    options = {"num_classes": 3, "preprocessing": "half", "image_size": 8, **options}
    model = keras_vit.ImageClassifier(backbone(), **options)
    for variable in randomize(model).weights:
        if "variance" in variable.path:
            variable.assign(keras.ops.abs(variable) + 0.5)
    return model


def expected(model, images):
    """The logits of NumPy, from the backbone's map."""
    features = model.backbone.predict(images, verbose=0).mean(axis=(1, 2))
    return features @ model.head.kernel.numpy() + model.head.bias.numpy()


def test_copies_and_files_have_the_same_outputs(tmp_path):
    model = classifier(class_names=["a", "b", "c"])
    images = np.random.default_rng(0).uniform(-1, 1, (2, 8, 8, 3)).astype("float32")
    logits = expected(model, images)
    model.save(tmp_path / "model.keras")
    loaded = keras_vit.load(tmp_path / "model.keras")
    assert loaded.class_names == ("a", "b", "c") and loaded.preprocessing == model.preprocessing
    for copy in (model, loaded, model.resized(12)):
        np.testing.assert_allclose(copy.predict(images, verbose=0), logits, atol=1e-5)
    other = model.with_head(5)
    np.testing.assert_allclose(other.features(images), model.features(images), atol=1e-6)
    assert other.output_shape == (None, 5) and not np.any(other(images))
    half = keras_vit.load(tmp_path / "model.keras", dtype="mixed_bfloat16")
    assert half.backbone.layers[1].compute_dtype == "bfloat16" and half.head.compute_dtype == "float32"
    np.testing.assert_allclose(half.predict(images, verbose=0), logits, rtol=0.05, atol=0.05)


def test_frozen_parts_are_saved(tmp_path):
    model = classifier()
    model.backbone.trainable = False
    model.save(tmp_path / "model.keras")
    loaded = keras_vit.load(tmp_path / "model.keras")
    assert [variable.path.split("/")[-1] for variable in loaded.trainable_variables] == ["kernel", "bias"]
    assert not loaded.with_head(2).backbone.layers[2].trainable  # batch normalization by its own statistics
    assert len(keras_vit.load(tmp_path / "model.keras").trainable_variables) == 2


def test_a_file_does_not_declare_more_weights_than_it_has(tmp_path):
    """Of arguments of other projects' layers, such as "depth", nothing is concluded; of ours it is."""
    classifier().save(tmp_path / "model.keras")
    assert '"depth": 3' in zipfile.ZipFile(tmp_path / "model.keras").read("config.json").decode()
    vit = keras_vit.ViT_Ti16(image_size=16, num_classes=0, depth=1, preprocessing="half")
    model = keras_vit.ImageClassifier(vit, num_classes=2, preprocessing="half")
    model.save(tmp_path / "vit.keras")
    with zipfile.ZipFile(tmp_path / "vit.keras") as file:
        members = {name: file.read(name) for name in file.namelist()}
    config = json.loads(members["config.json"])
    config["config"]["backbone"]["config"]["width"] = 192 * 1000
    with zipfile.ZipFile(tmp_path / "hostile.keras", "w") as file:
        for name, content in (members | {"config.json": json.dumps(config)}).items():
            file.writestr(name, content)
    assert keras_vit.load(tmp_path / "vit.keras").count_params() == vit.count_params() + 192 * 2 + 2
    with pytest.raises(ValueError, match="declares at least"):
        keras_vit.load(tmp_path / "hostile.keras")


def test_a_layer_of_a_package_that_was_not_imported_is_named(tmp_path, monkeypatch):
    classifier().save(tmp_path / "model.keras")
    monkeypatch.delitem(keras.saving.get_custom_objects(), "other>Twice")
    with pytest.raises(ValueError, match="contains a Twice. Import the package"):
        keras_vit.load(tmp_path / "model.keras")


@pytest.mark.parametrize("activation", [None, "softmax", "sigmoid"])
def test_from_model_returns_logits(activation):
    pooled = [backbone(8), keras.layers.GlobalAveragePooling2D()]
    head = keras.layers.Dense(3, activation if activation != "softmax" else None, use_bias=activation is not None)
    end = [keras.layers.Softmax()] if activation == "softmax" else []
    model = keras.Sequential([keras.Input((8, 8, 3)), *pooled, head, *end])
    randomize(head)
    images = np.random.default_rng(0).uniform(0, 255, (2, 8, 8, 3)).astype("float32")
    found = keras_vit.ImageClassifier.from_model(model, preprocessing="pixels", class_names=["a", "b", "c"])
    assert found.multi_label == (activation == "sigmoid") and found.image_size == (8, 8)
    outputs = keras.activations.get(activation)(found(images))
    np.testing.assert_allclose(outputs, model.predict(images, verbose=0), atol=1e-5)
    rows = [dict(row) for row in found.classify(list(images))]
    probabilities = outputs if activation else keras.ops.softmax(outputs)
    np.testing.assert_allclose([[row[name] for name in "abc"] for row in rows], probabilities, atol=1e-5)


def test_errors_say_what_to_pass():
    with pytest.raises(ValueError, match="'pixels'"):
        keras_vit.ImageClassifier(backbone(), num_classes=3)
    with pytest.raises(ValueError, match=r"Received: other, which ends in twice.*ImageClassifier\(backbone"):
        keras_vit.ImageClassifier.from_model(backbone(), preprocessing="half")
    with pytest.raises(ValueError, match=r"takes images of \(8, 8\) pixels.*image_size=\(16, 16\)"):
        keras_vit.ImageClassifier(backbone(8), preprocessing="half", image_size=16)
    with pytest.raises(ValueError, match=r"\(B, h, w, D\). Received: flat"):
        flat = keras.Sequential([keras.Input((8, 8, 3)), keras.layers.Reshape((4, 4, 4, 3))], name="flat")
        keras_vit.ImageClassifier(flat, preprocessing="half")
    with pytest.raises(ValueError, match="build the backbone with input_shape"):
        keras_vit.ImageClassifier(backbone(8), preprocessing="half")(np.zeros((1, 9, 9, 3), "float32"))


def test_backbones_of_other_inputs_and_outputs_are_refused():
    image, number = keras.Input((8, 8, 3)), keras.Input((4,))
    pooled = keras.layers.GlobalAveragePooling2D()(image)
    integers = keras.Input((8, 8, 3), dtype="uint8")
    scaled = keras.layers.GlobalAveragePooling2D()(keras.layers.Rescaling(1 / 255)(integers))
    refused = {
        "one input of images": keras.Model([image, number], keras.layers.Concatenate()([pooled, number])),
        "both sides known or none": keras.Sequential([keras.Input((8, None, 3)), keras.layers.GlobalMaxPooling2D()]),
        r"one input of images.*\(None, 8, 8, 1\)": keras.Sequential([keras.Input((8, 8, 1)), keras.layers.Flatten()]),
        "returns dict": keras.Model(image, {"features": pooled}),
        "returns list": keras.Model(image, [pooled, pooled]),
        'Expected preprocessing="pixels" for .* whose input is uint8': keras.Model(integers, scaled),
        "Expected a Keras model or layer": "resnet",
    }
    for text, network in refused.items():
        with pytest.raises(ValueError, match=text):
            keras_vit.ImageClassifier(network, num_classes=3, preprocessing="half")
    pixels = np.full((1, 8, 8, 3), 51.0, "float32")
    classifier = keras_vit.ImageClassifier(keras.Model(integers, scaled), num_classes=0, preprocessing="pixels")
    np.testing.assert_allclose(classifier(pixels), 0.2, atol=1e-6)


def test_heads_of_other_kinds_are_refused_and_a_frozen_one_stays_frozen():
    layers = [keras.Input((8, 8, 3)), keras.layers.GlobalAveragePooling2D()]
    twice = keras.Sequential([*layers, keras.layers.Dense(3, activation="softmax"), keras.layers.Softmax()])
    mapped = keras.Sequential([layers[0], keras.layers.Dense(3)])
    for text, network in {"which ends in softmax": twice, r"\(B, D\) before dense": mapped}.items():
        with pytest.raises(ValueError, match=text):
            keras_vit.ImageClassifier.from_model(network, preprocessing="half")
    frozen = keras.Sequential([*layers, keras.layers.Dense(3, trainable=False)])
    assert not keras_vit.ImageClassifier.from_model(frozen, preprocessing="half").trainable_variables
