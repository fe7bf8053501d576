import numpy as np
import pytest
import tensorflow as tf

from keras_vit.class_names import decode_predictions, imagenet_class_names


@pytest.mark.parametrize(
    "num_classes,index,wordnet_id,name",
    [
        (1000, 0, "n01440764", "tench, Tinca tinca"),
        (1000, 1, "n01443537", "goldfish, Carassius auratus"),
        (1000, 207, "n02099601", "golden retriever"),
        (1000, 281, "n02123045", "tabby, tabby cat"),
        (1000, 388, "n02510455", "giant panda, panda, panda bear, coon bear, Ailuropoda melanoleuca"),
        (1000, 999, "n15075141", "toilet tissue, toilet paper, bathroom tissue"),
        (21843, 0, "n00004475", "organism, being"),
        (21843, 21842, "n15102894", "knothole"),
        (21841, 0, "n00004475", "organism, being"),
        (21841, 21840, "n15102894", "knothole"),
    ],
)
def test_known_classes(num_classes, index, wordnet_id, name):
    assert imagenet_class_names(num_classes)[index] == (wordnet_id, name)


@pytest.mark.parametrize("num_classes", [1000, 21841, 21843])
def test_classes_are_sorted_by_wordnet_id(num_classes):
    ids, names = zip(*imagenet_class_names(num_classes))
    assert len(ids) == len(set(ids)) == num_classes and list(ids) == sorted(ids)
    assert all(len(x) == 9 and x[0] == "n" and x[1:].isdigit() for x in ids) and all(names)


def test_lists_are_consistent():
    small, large, fall = (dict(imagenet_class_names(number)) for number in (1000, 21843, 21841))
    assert set(small) - set(large) == {"n04399382"}  # teddy, renumbered
    assert all(large[x] == small[x] for x in set(small) & set(large))
    assert set(large) - set(fall) == {"n03931044", "n09859684"}


def test_logits_become_probabilities_in_order():
    logits = np.random.default_rng(0).standard_normal((3, 1000)).astype("float32")
    logits[0, 207], logits[1, 1] = 9, 8
    expected = tf.nn.softmax(tf.constant(logits, "float64")).numpy()
    decoded = decode_predictions(tf.constant(logits), top=4)
    assert [len(row) for row in decoded] == [4, 4, 4]
    assert decoded[0][0][:2] == ("n02099601", "golden retriever") and decoded[1][0][0] == "n01443537"
    np.testing.assert_allclose([[x[2] for x in row] for row in decoded], -np.sort(-expected)[:, :4], rtol=1e-6)


def test_21k_logits_become_sigmoids():
    logits = np.full((1, 21843), -10.0)
    logits[0, [0, 21842]] = 3, 50
    (best, second, third) = decode_predictions(logits, top=3)[0]
    assert best == ("n15102894", "knothole", 1.0) and second[:2] == ("n00004475", "organism, being")
    np.testing.assert_allclose([second[2], third[2]], [1 / (1 + np.exp(-3)), 1 / (1 + np.exp(10))])
    assert decode_predictions(logits, 1, activation="softmax")[0][0][2] == pytest.approx(1)


@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
def test_distributions_are_unchanged(dtype):
    probabilities = tf.cast(tf.nn.softmax(np.random.default_rng(0).standard_normal((2, 1000))), dtype)
    for row, decoded in zip(tf.cast(probabilities, "float32").numpy(), decode_predictions(probabilities)):
        np.testing.assert_array_equal([x[2] for x in decoded], -np.sort(-row)[:5])


def test_activations():
    names, scores = ["cat", "dog"], [[0.5, 2.0]]
    assert decode_predictions(scores, 2, names, activation=None) == [[(None, "dog", 2.0), (None, "cat", 0.5)]]
    (dog, cat) = decode_predictions(scores, 2, names, activation="sigmoid")[0]
    np.testing.assert_allclose([dog[2], cat[2]], 1 / (1 + np.exp([-2.0, -0.5])))
    (dog, cat) = decode_predictions(scores, 2, names)[0]
    assert dog[2] + cat[2] == pytest.approx(1) and dog[2] / cat[2] == pytest.approx(np.exp(1.5))


def test_names_with_ids_and_extreme_logits():
    names = imagenet_class_names(1000)[:2]
    assert decode_predictions([[-1e4, 1e4]], 2, names)[0] == [(*names[1], 1.0), (*names[0], 0.0)]
    assert decode_predictions([[-1e4, 1e4]], 2, names, "sigmoid")[0] == [(*names[1], 1.0), (*names[0], 0.0)]


@pytest.mark.parametrize(
    "outputs,arguments,message",
    [
        (np.zeros(1000), {}, r"shape \(batch, classes\). Received: \(1000,\)"),
        (np.zeros((1, 1001)), {}, "1000, 21841 or 21843 classes. Received: 1001. .*class_names="),
        (np.zeros((1, 3)), {"class_names": ["a", "b"], "top": 1}, "each of 3 classes. Received: 2"),
        (np.zeros((1, 1000)), {"top": 0}, "`top` must be .* 1000. Received: 0"),
        (np.zeros((1, 3)), {"class_names": "abc"}, "`top` must be .* 3. Received: 5"),
        (np.zeros((1, 1000)), {"activation": "tanh"}, "`activation` must be one of .* Received: 'tanh'"),
        (np.full((1, 1000), np.nan), {}, "NaN"),
    ],
)
def test_invalid_input_raises(outputs, arguments, message):
    with pytest.raises(ValueError, match=message):
        decode_predictions(outputs, **arguments)


def test_lists_are_cached():
    assert imagenet_class_names(1000) is imagenet_class_names(1000)
