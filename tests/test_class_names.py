"""Class names of ImageNet and of files, and the classes that outputs decode to."""

import numpy as np
import pytest
import tensorflow as tf

from keras_vit.class_names import (
    checked_lines,
    class_names_text,
    decode_predictions,
    describe_difference,
    imagenet_class_names,
    labels_file,
    own_class_names,
    read_class_names,
)
from keras_vit.messages import first_names


@pytest.mark.parametrize(
    "num_classes,index,wordnet_id,name",
    [
        (1000, 0, "n01440764", "tench, Tinca tinca"),
        (1000, 388, "n02510455", "giant panda, panda, panda bear, coon bear, Ailuropoda melanoleuca"),
        (1000, 999, "n15075141", "toilet tissue, toilet paper, bathroom tissue"),
        (21843, 21842, "n15102894", "knothole"),
        (21841, 0, "n00004475", "organism, being"),
        (21841, 21840, "n15102894", "knothole"),
    ],
)
def test_known_classes(num_classes, index, wordnet_id, name):
    assert imagenet_class_names(num_classes)[index] == (wordnet_id, name)


def test_lists_are_sorted_and_consistent():
    small, large, fall = (dict(imagenet_class_names(number)) for number in (1000, 21843, 21841))
    for names, length in ((small, 1000), (large, 21843), (fall, 21841)):
        assert len(names) == length and list(names) == sorted(names) and all(names.values())
        assert all(len(x) == 9 and x[0] == "n" and x[1:].isdigit() for x in names)
    assert set(small) - set(large) == {"n04399382"}  # teddy, renumbered
    assert all(large[x] == small[x] for x in set(small) & set(large))
    assert set(large) - set(fall) == {"n03931044", "n09859684"}


def test_logits_become_probabilities_in_order():
    logits = np.random.default_rng(0).standard_normal((3, 1000)).astype("float32")
    logits[0, 207], logits[1, 1] = 9, 8
    expected = tf.nn.softmax(tf.constant(logits, "float64")).numpy()
    decoded = decode_predictions(tf.constant(logits), top=4)
    assert decoded[0][0][:2] == ("n02099601", "golden retriever") and decoded[1][0][0] == "n01443537"
    np.testing.assert_allclose([[x[2] for x in row] for row in decoded], -np.sort(-expected)[:, :4], rtol=1e-6)


def test_21k_logits_become_sigmoids():
    logits = np.full((1, 21843), -10.0)
    logits[0, [0, 21842]] = 3, 50
    (best, second, third) = decode_predictions(logits, top=3)[0]
    assert best == ("n15102894", "knothole", 1.0) and second[:2] == ("n00004475", "organism, being")
    np.testing.assert_allclose([second[2], third[2]], [1 / (1 + np.exp(-3)), 1 / (1 + np.exp(10))])
    assert decode_predictions(logits, 1, activation="softmax")[0][0][2] == pytest.approx(1)


def test_distributions_are_unchanged():
    probabilities = tf.cast(tf.nn.softmax(np.random.default_rng(0).standard_normal((2, 1000))), "bfloat16")
    for row, decoded in zip(tf.cast(probabilities, "float32").numpy(), decode_predictions(probabilities)):
        np.testing.assert_array_equal([x[2] for x in decoded], -np.sort(-row)[:5])


def test_activations_and_extreme_logits():
    names, scores = ["cat", "dog"], [[0.5, 2.0]]
    assert decode_predictions(scores, 2, names, activation=None) == [[(None, "dog", 2.0), (None, "cat", 0.5)]]
    for activation, expected in (
        ("sigmoid", 1 / (1 + np.exp([-2.0, -0.5]))),
        ("auto", np.exp([1.5, 0]) / (1 + np.exp(1.5))),
    ):
        np.testing.assert_allclose([x[2] for x in decode_predictions(scores, 2, names, activation)[0]], expected)
    names = imagenet_class_names(1000)[:2]
    for activation in ("auto", "sigmoid"):
        found = decode_predictions([[-1e4, 1e4]], 2, names, activation)[0]
        assert found == [(*names[1], 1.0), (*names[0], 0.0)]


@pytest.mark.parametrize(
    "outputs,arguments,message",
    [
        (np.zeros(1000), {}, r"Received: \(1000,\)"),
        (np.zeros((1, 1001)), {}, "Received: 1001. .*class_names="),
        (np.zeros((1, 3)), {"class_names": ["a", "b"], "top": 1}, "3 classes. Received: 2"),
        (np.zeros((1, 1000)), {"top": 0}, "`top` .* Received: 0"),
        (np.zeros((1, 3)), {"class_names": "abc"}, "`top` .* Received: 5"),
        (np.zeros((1, 1000)), {"activation": "tanh"}, "Received: 'tanh'"),
        (np.full((1, 1000), np.nan), {}, "NaN"),
    ],
)
def test_invalid_outputs(outputs, arguments, message):
    with pytest.raises(ValueError, match=message):
        decode_predictions(outputs, **arguments)


@pytest.mark.parametrize("name", ["a\nb", "a\r", "a\u2028b", "a\x0bb", "", "  ", 3])
def test_names_that_are_not_one_line_raise(name):
    """str.splitlines reads each of them as another number of names."""
    for function in (checked_lines, class_names_text):
        with pytest.raises(ValueError, match="class 1"):
            function(["ok", name])


def test_names_are_read_as_written(tmp_path):
    names, file = ["tench, Tinca tinca", " indented", "naïve", "a\tb"], tmp_path / "x"
    for encoding in ("utf-8", "utf-8-sig"):  # the second with a byte order mark
        file.write_text(class_names_text(names), encoding=encoding)
        assert read_class_names(file) == names
    for content, message in ((b"", "empty"), (b"\xff\n", "UTF-8"), (b"a\n\nb\n", "one line")):
        file.write_bytes(content)
        with pytest.raises(ValueError, match=message):
            read_class_names(file)


def test_place_of_a_models_names(tmp_path):
    assert labels_file(tmp_path) == labels_file(tmp_path / "model.keras") == tmp_path / "labels.txt"
    assert labels_file(tmp_path / "deit.npz") == tmp_path / "deit.npz.labels.txt"
    (tmp_path / "labels.txt").write_text("a\nb\n")
    assert own_class_names(tmp_path, 2) == ["a", "b"]
    assert own_class_names(tmp_path, 0) is None and own_class_names(tmp_path / "deit.npz", 2) is None
    assert own_class_names("vit/imagenet21k/ViT-B_16", 2) is None and own_class_names("hf:google/vit", 2) is None
    with pytest.raises(ValueError, match="2 class names, but .* 3 classes"):
        own_class_names(tmp_path, 3)


def test_differences_and_long_lists():
    assert describe_difference("abc", "abc") == ""
    assert describe_difference("abc", "acb") == "the order differs: class 1 is 'b' there, but 'c' here"
    found = describe_difference("abcdefgh", "ax")
    assert found == "8 classes there, 2 here; missing here: 'b', 'c', 'd', 'e', 'f' and 2 more; new here: 'x'"
    assert describe_difference("aab", "abb") == "class 1 is 'a' there, but 'b' here"
    assert first_names([]) == "" and first_names("abcde") == "a, b, c, d, e"
    assert first_names(map(str, range(2000))) == "0, 1, 2, 3, 4 and 1,995 more"
