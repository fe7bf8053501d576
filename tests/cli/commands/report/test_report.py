"""`keras-vit report` in a browser: its numbers are those of NumPy and SciPy, its buttons open the images they count."""

import re

import numpy as np
import pytest
from browser import chromium
from PIL import Image
from scenes import scene
from scipy.stats import mannwhitneyu
from selenium.webdriver.common.by import By
from selenium.webdriver.common.keys import Keys

from keras_vit.recipes.evaluation.predictions import read_predictions, write_predictions
from keras_vit_cli import evidence
from keras_vit_cli.main import main

pytestmark = pytest.mark.slow
NAMES = ["cat", "<b>dog", "owl"]
COUNT = 40


@pytest.fixture(scope="module")
def browser(tmp_path_factory):
    driver = chromium(tmp_path_factory.mktemp("chromium"))
    yield driver
    driver.quit()


def write_table(folder, names, labels, activation="softmax", scale=1.2):
    """predictions.csv of random logits that know something of the labels; some of its files are there."""
    random = np.random.default_rng(3)
    correct = labels if np.ndim(labels) == 2 else np.eye(len(names))[labels]
    logits = random.normal(size=(len(labels), len(names))) + scale * (correct - 0.5)
    files = []
    for number in range(len(labels)):
        files.append(str(folder / f"<i>&'{number}.png"))
        if number % 5:
            scene(number, (40 + number, 30)).save(files[-1])
    with write_predictions(folder / "predictions.csv", names, activation) as rows:
        rows.add(files, logits, labels)
    return read_predictions(folder / "predictions.csv")


def opened(browser, folder, *options):
    assert main(["report", str(folder / "predictions.csv"), *map(str, options)]) == 0
    browser.get((folder / "report.html").as_uri())
    text = (folder / "report.html").read_text()
    assert not re.search(r"(src|href)=\"?https?:|@import", text) and len(text) < 5e6
    return text


def shown(browser):
    """The files of the gallery."""
    figures = browser.find_elements(By.CSS_SELECTOR, "#gallery figure")
    return [figure.get_dom_attribute("data-file") for figure in figures]


def cells(browser, table):
    """The texts of a table's rows after the first."""
    rows = "[...document.querySelectorAll(arguments[0] + ' tr')]"
    return browser.execute_script(f"return {rows}.map((row) => [...row.cells].map((c) => c.textContent))", table)[1:]


def test_each_number_of_the_matrix_opens_its_images(browser, tmp_path):
    labels = np.arange(COUNT) % 3
    predictions = write_table(tmp_path, NAMES, labels)
    opened(browser, tmp_path)
    predicted = predictions.probabilities.argmax(-1)
    buttons = browser.find_elements(By.CSS_SELECTOR, "#confusion button")
    pairs = sorted(set(zip(labels.tolist(), predicted.tolist())))
    assert len(buttons) == len(pairs) > 5
    for button, (true, guess) in zip(buttons, pairs):
        button.send_keys(Keys.ENTER)
        rows = np.flatnonzero((labels == true) & (predicted == guess))
        assert shown(browser) == [predictions.files[row] for row in rows] and button.text == str(len(rows))
        assert button.get_dom_attribute("aria-pressed") == "true"
        images = browser.find_elements(By.CSS_SELECTOR, "#gallery img")
        assert len(images) == sum(row % 5 > 0 for row in rows) and all(
            image.get_property("naturalWidth") > 30 for image in images
        )
    right = int((labels == predicted).sum())
    assert f"{100 * right / COUNT:.1f} % [" in browser.find_element(By.CSS_SELECTOR, ".card").text
    for number, row in enumerate(cells(browser, "#classes")):
        recall = (predicted[labels == number] == number).mean()
        precision = (labels[predicted == number] == number).mean()
        assert row[0] == NAMES[number] and row[2].startswith(f"{recall:.1%} [") and row[3] == f"{precision:.1%}"
    assert not browser.get_log("browser")
    for width in (390, 1200):
        size = {"width": width, "height": 900, "deviceScaleFactor": 1, "mobile": False}
        browser.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", size)
        assert browser.execute_script("return document.documentElement.scrollWidth") <= width
    browser.execute_cdp_cmd("Emulation.clearDeviceMetricsOverride", {})


def test_two_classes_have_curves_and_thresholds(browser, tmp_path):
    labels = (np.arange(COUNT) % 4 == 0).astype(int)  # the second is rarer
    predictions = write_table(tmp_path, NAMES[:2], labels)
    scores = predictions.probabilities[:, 1]
    browser_text = opened(browser, tmp_path)
    assert "Thresholds of &lt;b&gt;dog" in browser_text and "ROC curve" in browser_text
    for row in cells(browser, "details table"):
        chosen = scores >= float(row[0])
        values = [chosen[labels == 1].mean(), (~chosen)[labels == 0].mean()]
        assert row[1:3] == [f"{value:.1%}" for value in values]
        assert row[4:] == [str((~chosen & (labels == 1)).sum()), str((chosen & (labels == 0)).sum())]
    assert len(cells(browser, "details table")) == 19


def test_several_labels(browser, tmp_path):
    labels = np.array([[i % 2, i % 3 == 0, i % 5 == 0] for i in range(COUNT)], int)
    predictions = write_table(tmp_path, NAMES, labels, "sigmoid", scale=2)
    opened(browser, tmp_path)
    for number, row in enumerate(cells(browser, "#confusion")):
        correct, scores = labels[:, number] > 0, predictions.probabilities[:, number]
        area = mannwhitneyu(scores[correct], scores[~correct]).statistic / (correct.sum() * (~correct).sum())
        assert row[-1] == f"{area:.3f}"
        ranked = correct[np.argsort(-scores)]
        precision = np.cumsum(ranked) / np.arange(1, COUNT + 1)
        assert row[-2] == f"{precision[ranked].mean():.1%}"  # without ties, the mean of the precisions at each hit
        for kind, wrong in (("missed", correct & (scores < 0.5)), ("false", ~correct & (scores >= 0.5))):
            button = browser.find_elements(By.CSS_SELECTOR, f"button[data-images={kind}-{number}]")
            assert bool(button) == wrong.any()
            if button:
                browser.execute_script("arguments[0].click()", button[0])
                assert shown(browser) == [predictions.files[row] for row in np.flatnonzero(wrong)]


def test_a_comparison_the_log_and_the_evidence(trained_toy, tmp_path, capsys):
    labels = np.arange(COUNT) % 3
    write_table(tmp_path, NAMES, labels, scale=2)
    (tmp_path / "other").mkdir()
    predictions = write_table(tmp_path, NAMES, labels)
    (tmp_path / "log.csv").write_text("epoch,step,loss,val_loss\n1,5,1.0,0.9\n2,10,0.5,\n")
    model = trained_toy(num_classes=3, class_names=NAMES)
    model.save(tmp_path / "model.keras")
    with write_predictions(tmp_path / "other" / "x.csv", NAMES, "softmax") as rows:
        rows.add(predictions.files, np.eye(3)[labels], labels)
    assert main(["report", str(tmp_path / "predictions.csv"), "--compare", str(tmp_path / "other" / "x.csv")]) == 0
    wrong = int((~predictions.right).sum())
    assert f": +{100 * wrong / COUNT:.1f} points [" in capsys.readouterr().out
    text = (tmp_path / "report.html").read_text()
    ordered = np.sort(predictions.probabilities, axis=-1)
    mistakes = np.argsort(-np.where(predictions.right, 0, ordered[:, -1]))[: min(wrong, 12)]
    uncertain = np.argsort(ordered[:, -1] - ordered[:, -2])[:12]
    assert text.count("<figcaption>evidence<") == sum(row % 5 > 0 for row in (*mistakes, *uncertain)) > 12
    assert 'alt="Loss"' in text


@pytest.mark.parametrize("count,words", [(5, "Beside 5 of "), (0, "has too many patches")])
def test_evidence_of_as_many_images_as_take_a_minute(count, words, trained_toy, tmp_path, monkeypatch):
    write_table(tmp_path, NAMES, np.arange(COUNT) % 3)
    model = trained_toy(num_classes=3, class_names=NAMES)
    model.save(tmp_path / "model.keras")
    weights = np.prod(np.shape(model.attention_maps(np.zeros((1, 16, 16, 3), "float32"))))
    monkeypatch.setattr(evidence, "MOST_WEIGHTS", int(weights) * count + 1)
    assert main(["report", str(tmp_path)]) == 0
    text = (tmp_path / "report.html").read_text()
    mistakes = text[text.index("Most confident mistakes") : text.index("Least certain images")]
    assert text.count("<figcaption>evidence<") >= mistakes.count("<figcaption>evidence<") == count and words in text


@pytest.mark.parametrize(
    "arguments,words",
    [
        (["no.csv"], "no.csv"),
        (["images.png"], "not UTF-8"),
        ([".", "--model", "cifar10/R6_Ti_4"], "other classes"),
        (["predictions.csv", "--output", "x.png"], ".html"),
        (["predictions.csv", "--output", "no/x.html"], "folder"),
        (["predictions.csv", "--compare", "no.csv"], "no.csv"),
        (["predictions.csv", "--model", "no.keras"], "no.keras"),
    ],
)
def test_wrong_arguments(arguments, words, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    write_table(tmp_path, NAMES, np.arange(6) % 3)
    Image.new("RGB", (4, 4)).save(tmp_path / "images.png")
    assert main(["report", *arguments]) == 1
    assert words in capsys.readouterr().err and not (tmp_path / "report.html").exists()
