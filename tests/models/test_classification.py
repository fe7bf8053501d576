"""`classify`: names and probabilities equal those computed by hand from the logits."""

import keras
import numpy as np
import pytest
from PIL import Image

import keras_vit
from keras_vit.class_names import decode_predictions
from keras_vit.export.saved_model import _serving_functions
from keras_vit.models.classification import output_activation, output_names

NAMES = ("ant", "bee", "cat")
BLACK = np.zeros((16, 16, 3), "uint8")


@pytest.fixture
def model(toy):
    model = toy(num_classes=3, depth=1, class_names=NAMES)
    model.head.kernel.assign(np.random.default_rng(0).normal(size=model.head.kernel.shape))
    return model


def test_names_and_probabilities(model, tmp_path):
    images = np.random.default_rng(1).integers(0, 256, (40, 16, 16, 3), dtype="uint8")
    logits = np.asarray(model(model.preprocess(images)))
    softmax = np.exp(logits) / np.exp(logits).sum(axis=1, keepdims=True)
    found = model.classify(list(images), top=2)  # more than a batch
    for row, best in zip(softmax, found, strict=True):
        first, second = np.argsort(-row)[:2]
        assert [name for name, _ in best] == [NAMES[first], NAMES[second]]
        np.testing.assert_allclose([probability for _, probability in best], row[[first, second]], atol=1e-5)
    Image.fromarray(images[0]).save(tmp_path / "a.png")
    for image in (images[0], str(tmp_path / "a.png"), Image.fromarray(images[0])):
        ((best,),) = keras_vit.classify(model, image, top=1)
        assert best[0] == found[0][0][0]
    assert len(model.classify(images[0])[0]) == 3 and len(model.classify(images, top=1)) == 40


def test_names_belong_to_the_head(model, tmp_path):
    assert model.resized(32).class_names == NAMES and model.with_head(4).class_names is None
    assert model.with_head(2, ["a", "b"]).class_names == ("a", "b")
    file = tmp_path / "m.keras"
    model.save(file)
    for options, names in (
        ({"dtype": "mixed_bfloat16"}, NAMES),
        ({"num_classes": 2}, None),
        ({"num_classes": 1, "class_names": ["x"]}, ("x",)),
        ({"class_names": ["x", "y", "z"]}, ("x", "y", "z")),
    ):
        assert keras_vit.load(file, **options).class_names == names


@pytest.mark.slow
def test_names_of_files_beside_the_weights(toy, tmp_path):
    keras_vit.weights.save(toy(num_classes=3), tmp_path / "m.npz", class_names=NAMES)
    for classes, names in ((None, NAMES), (3, NAMES), (4, None), (0, None)):
        assert keras_vit.load(tmp_path / "m.npz", num_heads=3, num_classes=classes).class_names == names
    keras_vit.weights.save(toy(num_classes=3), tmp_path / "hf", class_names=NAMES)
    (tmp_path / "hf" / "labels.txt").unlink()  # config.json has them too
    assert keras_vit.load(tmp_path / "hf").class_names == NAMES
    keras_vit.weights.save(toy(num_classes=3), tmp_path / "unnamed")
    assert keras_vit.load(tmp_path / "unnamed").class_names is None
    assert output_names(toy(num_classes=2)) == ("class 0", "class 1")
    assert output_names(toy(num_classes=1000))[0] == "tench, Tinca tinca"


def test_one_output_is_a_sigmoid_everywhere(toy, tmp_path):
    """The softmax of one logit is 1 for every image."""
    model = toy(depth=1, num_classes=1)
    model.head.bias.assign([-2.0])
    expected = 1 / (1 + np.exp(2))
    assert model.classify(BLACK) == [[("class 0", pytest.approx(expected))]]
    assert decode_predictions([[-2.0]], 1, ["cat"]) == [[(None, "cat", pytest.approx(expected))]]
    signature = _serving_functions(model)["classify"]
    np.testing.assert_allclose(
        signature(np.zeros((2, 16, 16, 3), "float32"))["probabilities"], [[expected]] * 2, rtol=1e-5
    )


@pytest.mark.parametrize("options", [{"num_classes": 3, "multi_label": True}, {"num_classes": 21843, "width": 6}])
def test_sigmoids(toy, options):
    model = toy(depth=1, **options)
    model.head.bias.assign(np.linspace(-3, 3, model.num_classes))
    ((best, second),) = model.classify(BLACK, top=2)
    assert output_activation(model) == "sigmoid" and best[1] + second[1] > 1.4
    assert best[1] == pytest.approx(1 / (1 + np.exp(-3)))


def test_one_class_without_several_labels_is_a_softmax(toy):
    """Also if the logits happen to be a distribution."""
    model = toy(depth=1, num_classes=2)
    model.head.bias.assign([0.2, 0.8])
    (best,) = model.classify(BLACK, top=1)
    assert output_activation(model) == "softmax" and best[0][1] == pytest.approx(1 / (1 + np.exp(-0.6)))


def test_invalid_arguments_and_models(toy, model):
    for top in (0, 2.5, True, "3"):
        with pytest.raises(ValueError, match=f"`top` .* Received: {top!r}"):
            model.classify(BLACK, top=top)
    with pytest.raises(ValueError, match="2 names for 3 classes"):
        toy(num_classes=3, class_names=["a", "b"])
    with pytest.raises(ValueError, match="one line"):
        keras_vit.BiT(num_classes=1, class_names=["a\nb"])
    for options in ({"num_classes": 0}, {"pooling": "none"}):
        with pytest.raises(ValueError, match="no head for whole images"):
            toy(**options).classify(BLACK)


@pytest.mark.parametrize(
    "keyword,word", [("input_shape", "image_size"), ("num_class", "num_classes"), ("foo", "width")]
)
def test_arguments_of_other_libraries_are_named(toy, keyword, word):
    with pytest.raises(ValueError, match=word):
        toy(**{keyword: 3})


def test_a_saved_model_is_compiled_as_before(toy, tmp_path):
    model = toy(num_classes=3)
    model.compile(keras.optimizers.SGD(0.1, momentum=0.9), keras.losses.SparseCategoricalCrossentropy(from_logits=True))
    images, labels = np.random.default_rng(0).normal(size=(4, 16, 16, 3)).astype("float32"), np.array([0, 1, 2, 0])
    model.train_on_batch(images, labels)
    model.save(tmp_path / "model.keras")
    loaded = keras.models.load_model(tmp_path / "model.keras")
    states = [dict(enumerate(map(np.asarray, each.optimizer.variables))) for each in (model, loaded)]
    np.testing.assert_equal(*states)
    losses = [each.train_on_batch(images, labels) for each in (model, loaded)]
    np.testing.assert_allclose(*losses, rtol=1e-6)
