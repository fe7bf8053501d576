import warnings

import numpy as np
import pytest
from sklearn.datasets import load_digits
from sklearn.linear_model import LogisticRegression
from sklearn.model_selection import StratifiedShuffleSplit
from threadpoolctl import threadpool_limits

from keras_vit.recipes.evaluation.probe import knn, linear_probe


@pytest.fixture(scope="module")
def digits():
    pixels, labels = load_digits(return_X_y=True)
    return pixels[:800], labels[:800], pixels[800:1200], labels[800:1200]


def knn_by_loops(train, labels, test, count):
    winners = []
    for image in test:
        cosines = train @ image / np.linalg.norm(train, axis=1) / np.linalg.norm(image)
        score = np.zeros(10)
        for i in np.argsort(-cosines)[:count]:
            score[labels[i]] += np.exp(cosines[i] / 0.07)
        winners.append(score.argmax())
    return winners


def test_knn_votes_by_cosine_similarity(digits):
    train, labels, test, _ = digits
    votes = knn(train, labels, test[:100], 15)
    np.testing.assert_array_equal(votes, knn_by_loops(train, labels, test[:100], 15))


def test_accuracy_on_digits(digits):
    train, labels, test, answers = digits
    assert np.mean(knn(train, labels, test) == answers) > 0.93
    assert np.mean(linear_probe(train, labels, test)[0] == answers) > 0.9
    with pytest.raises(ValueError, match="10 training images. Received: 11"):
        knn(train[:10], labels[:10], test, 11)
    with pytest.raises(ValueError, match="keras-vit few-shot"):
        linear_probe(train[:30], labels[:30], test)


def test_penalty_is_the_best_on_a_held_out_tenth():
    random = np.random.default_rng(0)
    labels = random.integers(0, 2, 400)
    features = random.normal(0, 3, (400, 60))
    features[:, 0] += 6 * labels
    predicted, strength = linear_probe(features[:300], labels[:300], features[300:])
    x = (features - features[:300].mean(axis=0)) / features[:300].std(axis=0)
    rest, tenth = next(StratifiedShuffleSplit(1, test_size=0.1, random_state=0).split(x[:300], labels[:300]))
    scores = {
        penalty: LogisticRegression(C=penalty).fit(x[rest], labels[rest]).score(x[tenth], labels[tenth])
        for penalty in (1e-4, 1e-3, 1e-2, 0.1, 1.0, 10.0, 100.0, 1e3, 1e4)
    }
    assert scores[strength] == max(scores.values()) > min(scores.values())
    expected = LogisticRegression(C=strength).fit(x[:300], labels[:300]).predict(x[300:])
    np.testing.assert_array_equal(predicted, expected)


def test_small_penalties_converge():
    """Random labels of features with a spectrum from 1 to 6e-4: 1,000 iterations are too few."""
    random = np.random.default_rng(0)
    features = random.normal(size=(140, 40)) * np.arange(1.0, 41) ** -2 @ random.normal(size=(40, 40))
    labels = random.integers(0, 3, 140)
    with warnings.catch_warnings(), threadpool_limits(1):  # threads on busy CPUs take far longer
        warnings.simplefilter("error")
        predicted, strength = linear_probe(features[:100], labels[:100], features[100:])
    x = (features - features[:100].mean(axis=0)) / features[:100].std(axis=0)
    newton = LogisticRegression(C=strength, solver="newton-cg").fit(x[:100], labels[:100])
    np.testing.assert_array_equal(predicted, newton.predict(x[100:]))
