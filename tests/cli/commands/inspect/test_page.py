"""The report of `keras-vit inspect` in a browser shows what the model computes."""

import json
import re

import keras
import numpy as np
import pytest
from browser import chromium
from PIL import Image
from scenes import scene
from selenium.webdriver.common.action_chains import ActionChains
from selenium.webdriver.common.by import By
from selenium.webdriver.common.keys import Keys
from selenium.webdriver.support.select import Select

import keras_vit
from keras_vit.inspect import position_similarity
from keras_vit_cli.main import main

pytestmark = pytest.mark.slow
# A file name must not end the script or start another.
NAMES = ("<!--<script>&amp;'.png", "a.png", "deep/b.png")
CELLS = "return [...document.querySelectorAll('#patches [role=gridcell]')]"


@pytest.fixture(scope="module")
def model():
    keras.utils.set_random_seed(0)
    sizes = {"image_size": (32, 48), "patch_size": 8, "depth": 3, "width": 24, "mlp_dim": 48, "num_heads": 3}
    model = keras_vit.VisionTransformer(**sizes, num_classes=4, register_tokens=1)
    random = np.random.default_rng(5)
    for weight in model.weights:
        weight.assign(weight + 0.4 * random.standard_normal(weight.shape))
    return model


@pytest.fixture(scope="module")
def report(model, tmp_path_factory):
    """report.html, beside images/."""
    place = tmp_path_factory.mktemp("report")
    (place / "images" / "deep").mkdir(parents=True)
    for i, name in enumerate(NAMES):
        scene(i, (48 + i, 40)).save(place / "images" / name)
    model.save(place / "x.keras")
    options = ("--images", place / "images", "--output", place / "report.html")
    assert main(["inspect", str(place / "x.keras"), *map(str, options)]) == 0
    return place / "report.html"


@pytest.fixture(scope="module")
def attention(model, report):
    """(3, depth, K, N, N) of the images in the order of the report."""
    images = [np.asarray(Image.open(report.parent / "images" / name)) for name in NAMES]
    return np.asarray(model.attention_maps(model.preprocess(images)))


@pytest.fixture(scope="module")
def browser(tmp_path_factory):
    driver = chromium(tmp_path_factory.mktemp("chromium"))
    yield driver
    driver.quit()


@pytest.fixture
def opened(browser, report):
    browser.get_log("performance")
    browser.get(report.as_uri())
    return browser


def check(browser, rows):
    """The report shows the mean of rows (heads, N) over heads, without prefix tokens, up to rounding to 8 bits."""
    expected = rows.mean(axis=0)[2:]
    half_step = 0.5 * rows.max(axis=1).mean() / 255
    labels = browser.execute_script(f"{CELLS}.map((cell) => cell.ariaLabel)")
    assert all(label.startswith(f"row {i // 6 + 1}, column {i % 6 + 1}: ") for i, label in enumerate(labels))
    percentages = np.array([float(re.search(r": ([\d.]+)\s%", label)[1]) / 100 for label in labels])
    assert np.abs(percentages - expected).max() <= half_step + np.where(expected.max() < 0.0999, 5.1e-5, 5.1e-4)
    # The opacity of the orange over each patch, (24,) in [0, 0.9].
    colors = browser.execute_script(f"{CELLS}.map((cell) => getComputedStyle(cell).backgroundColor)")
    parts = [re.findall(r"[\d.]+", color) for color in colors]
    opacities = np.array([float(part[3]) if len(part) == 4 else 1.0 for part in parts])
    np.testing.assert_allclose(opacities, 0.9 * expected / expected.max(), atol=2 * half_step / expected.max() + 5e-3)


def test_click_shows_attention_of_a_patch(opened, report, attention):
    check(opened, attention[0, 2, :, 0])  # the class token is selected at first
    for image, layer, head, patch in [(0, 2, None, 0), (1, 0, 1, 17), (2, 1, 2, 23)]:
        opened.find_elements(By.CSS_SELECTOR, "#thumbnails button")[image].click()
        script = "arguments[0].value = arguments[1]; arguments[0].dispatchEvent(new Event('input'))"
        opened.execute_script(script, opened.find_element(By.ID, "layer"), layer)
        Select(opened.find_element(By.ID, "head")).select_by_index(0 if head is None else head + 1)
        cells = opened.execute_script(CELLS)
        cells[patch].click()
        rows = attention[image, layer, :, 2 + patch] if head is None else attention[image, layer, [head], 2 + patch]
        check(opened, rows)
        assert opened.find_element(By.ID, "image").get_attribute("alt") == NAMES[image]
        status = opened.find_element(By.ID, "status").text
        assert f"row {patch // 6 + 1}, column {patch % 6 + 1}, layer {layer + 1}, " in status
        assert ("mean over heads" if head is None else f"head {head + 1}:") in status
        assert [cell.get_attribute("aria-selected") for cell in cells].index("true") == patch
        to_class_token = float(re.search(r"([\d.]+)\s% to the class token", status)[1]) / 100
        assert to_class_token == pytest.approx(rows.mean(axis=0)[0], abs=0.002)
    events = [json.loads(entry["message"])["message"] for entry in opened.get_log("performance")]
    urls = [e["params"]["request"]["url"] for e in events if e["method"] == "Network.requestWillBeSent"]
    assert {url for url in urls if not url.startswith(("data:", "chrome:"))} == {report.as_uri()}
    assert not [entry for entry in opened.get_log("browser") if entry["level"] == "SEVERE"]
    broken = "return [...document.images].filter((image) => !image.naturalWidth).length"
    assert opened.execute_script(broken) == 0 and len(opened.find_elements(By.TAG_NAME, "img")) > 20


@pytest.mark.extended
def test_register_pointer_and_keyboard(opened, model, attention):
    class_token, register = opened.find_elements(By.CSS_SELECTOR, "#prefix button")
    register.click()
    check(opened, attention[0, 2, :, 1])
    assert [token.get_attribute("aria-pressed") for token in (class_token, register)] == ["false", "true"]

    def check_similarities(patch):
        script = "return [...document.querySelectorAll('#similarity > div > div')].map((c) => c.title)"
        expected = position_similarity(model).reshape(24, 24)
        found = np.array(opened.execute_script(script), float)
        np.testing.assert_allclose(found, expected[patch], atol=(1 - expected.min()) / 510 + 1e-3)

    cells = opened.execute_script(CELLS)
    ActionChains(opened).move_to_element(cells[20]).perform()
    check_similarities(20)
    ActionChains(opened).move_to_element(opened.find_element(By.TAG_NAME, "h1")).perform()
    cells[0].send_keys(Keys.ARROW_RIGHT)
    opened.switch_to.active_element.send_keys(Keys.ARROW_DOWN)
    check_similarities(7)
    check(opened, attention[0, 2, :, 1])  # moving the focus selects nothing
    opened.switch_to.active_element.send_keys(Keys.ENTER)
    check(opened, attention[0, 2, :, 2 + 7])
    cells[0].send_keys(Keys.ARROW_UP)  # the focus stays at the border
    assert opened.switch_to.active_element == cells[0]


@pytest.mark.extended
def test_accessible_names_and_narrow_screens(opened):
    opened.execute_script("document.querySelectorAll('details').forEach((part) => { part.open = true; })")
    for part in opened.find_elements(By.CSS_SELECTOR, "input, button, select, img, [role], #similarity"):
        if part.get_dom_attribute("role") in ("row", "status") or part.find_elements(By.XPATH, "../figcaption"):
            continue  # named by their content, images by their caption
        assert part.accessible_name, part.get_attribute("outerHTML")[:200]
    assert len(opened.find_elements(By.CSS_SELECTOR, "#patches [tabindex='0']")) == 1  # Tab leaves the grid
    for width in (390, 1100):
        metrics = {"width": width, "height": 800, "deviceScaleFactor": 1, "mobile": width < 500}
        opened.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", metrics)
        assert opened.execute_script("return document.documentElement.scrollWidth") <= width
    opened.execute_cdp_cmd("Emulation.clearDeviceMetricsOverride", {})
