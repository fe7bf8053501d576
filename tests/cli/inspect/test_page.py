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
NAMES = ("a.png", "deep/b.png", "<!--<script>&amp;'.png")


@pytest.fixture(scope="module")
def model():
    keras.utils.set_random_seed(0)
    model = keras_vit.VisionTransformer(
        image_size=(32, 48), patch_size=8, depth=3, width=24, mlp_dim=48, num_heads=3, num_classes=4, register_tokens=1
    )
    random = np.random.default_rng(5)
    for weight in model.weights:
        weight.assign(weight + 0.4 * random.standard_normal(weight.shape))
    return model


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    folder = tmp_path_factory.mktemp("images")
    (folder / "deep").mkdir()
    for i, name in enumerate(NAMES):
        scene(i, (48 + i, 40)).save(folder / name)
    return folder


@pytest.fixture(scope="module")
def report(model, folder, tmp_path_factory):
    place = tmp_path_factory.mktemp("report")
    model.save(place / "x.keras")
    options = ("--images", folder, "--output", place / "report.html")
    assert main(["inspect", str(place / "x.keras"), *map(str, options)]) == 0
    return place / "report.html"


@pytest.fixture(scope="module")
def attention(model, folder):
    """(3, depth, K, N, N) of the images in the order of the report."""
    images = [np.asarray(Image.open(folder / name)) for name in sorted(NAMES)]
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


def cells(browser):
    return browser.find_elements(By.CSS_SELECTOR, "#patches [role=gridcell]")


def label_weights(browser):
    """Attention in the labels of the patches, (24,) in [0, 1]."""
    labels = browser.execute_script(
        "return [...document.querySelectorAll('#patches [role=gridcell]')].map((cell) => cell.ariaLabel)"
    )
    for i, label in enumerate(labels):
        assert label.startswith(f"row {i // 6 + 1}, column {i % 6 + 1}: ")
    return np.array([float(re.search(r": ([\d.]+)\s%", label)[1]) / 100 for label in labels])


def opacities(browser):
    """Opacity of the orange over each patch, (24,) in [0, 0.9]."""
    color = "return arguments[0].map((cell) => getComputedStyle(cell).backgroundColor)"
    colors = browser.execute_script(color, cells(browser))
    parts = [re.findall(r"[\d.]+", color) for color in colors]
    return np.array([float(part[3]) if len(part) == 4 else 1.0 for part in parts])


def similarities(browser):
    """Values of the displayed similarity map, (24,)."""
    titles = browser.execute_script(
        "return [...document.querySelectorAll('#similarity > div > div')].map((c) => c.title)"
    )
    return np.array(titles, float)


def set_layer(browser, number):
    script = "arguments[0].value = arguments[1]; arguments[0].dispatchEvent(new Event('input'))"
    browser.execute_script(script, browser.find_element(By.ID, "layer"), number)


def check(browser, rows):
    """The report shows the mean of rows (heads, N) over heads, without prefix tokens, up to rounding to 8 bits."""
    expected = rows.mean(axis=0)[2:]
    half_step = 0.5 * rows.max(axis=1).mean() / 255
    found = label_weights(browser)
    assert np.abs(found - expected).max() <= half_step + np.where(expected.max() < 0.0999, 5.1e-5, 5.1e-4)
    np.testing.assert_allclose(
        opacities(browser), 0.9 * expected / expected.max(), atol=2 * half_step / expected.max() + 5e-3
    )


@pytest.mark.parametrize("image,layer,head,patch", [(0, 2, None, 0), (1, 0, 1, 17), (2, 1, 2, 23)])
def test_click_shows_attention_of_a_patch(opened, attention, image, layer, head, patch):
    opened.find_elements(By.CSS_SELECTOR, "#thumbnails button")[image].click()
    set_layer(opened, layer)
    Select(opened.find_element(By.ID, "head")).select_by_index(0 if head is None else head + 1)
    cells(opened)[patch].click()
    rows = attention[image, layer, :, 2 + patch] if head is None else attention[image, layer, [head], 2 + patch]
    check(opened, rows)
    assert opened.find_element(By.ID, "image").get_attribute("alt") == sorted(NAMES)[image]
    status = opened.find_element(By.ID, "status").text
    assert f"Attention of the patch in row {patch // 6 + 1}, column {patch % 6 + 1}, layer {layer + 1}, " in status
    assert ("mean over heads" if head is None else f"head {head + 1}:") in status
    assert [cell.get_attribute("aria-selected") for cell in cells(opened)].index("true") == patch
    to_class_token = float(re.search(r"([\d.]+)\s% to the class token", status)[1]) / 100
    assert to_class_token == pytest.approx(rows.mean(axis=0)[0], abs=0.002)


def test_attention_of_prefix_tokens(opened, attention):
    check(opened, attention[0, 2, :, 0])  # the class token is selected at first
    class_token, register = opened.find_elements(By.CSS_SELECTOR, "#prefix button")
    assert (class_token.text, register.text) == ("Attention of the class token", "Attention of register 1")
    register.click()
    check(opened, attention[0, 2, :, 1])
    assert [token.get_attribute("aria-pressed") for token in (class_token, register)] == ["false", "true"]
    assert "Attention of register 1, layer 3" in opened.find_element(By.ID, "status").text


def test_pointer_and_focus_show_position_similarity(opened, model, attention):
    expected = position_similarity(model).reshape(24, 24)
    step = (1 - expected.min()) / 255
    ActionChains(opened).move_to_element(cells(opened)[20]).perform()
    np.testing.assert_allclose(similarities(opened), expected[20], atol=step / 2 + 1e-3)
    assert "row 4, column 3" in opened.find_element(By.ID, "similarity").accessible_name
    before = label_weights(opened)

    ActionChains(opened).move_to_element(opened.find_element(By.TAG_NAME, "h1")).perform()
    cells(opened)[0].send_keys(Keys.ARROW_RIGHT)
    opened.switch_to.active_element.send_keys(Keys.ARROW_DOWN)
    np.testing.assert_allclose(similarities(opened), expected[7], atol=step / 2 + 1e-3)
    np.testing.assert_array_equal(label_weights(opened), before)  # moving the focus selects nothing
    opened.switch_to.active_element.send_keys(Keys.ENTER)
    check(opened, attention[0, 2, :, 2 + 7])
    cells(opened)[0].send_keys(Keys.ARROW_UP)  # the focus stays at the border
    assert opened.switch_to.active_element == cells(opened)[0]


def test_no_network_requests_and_no_errors(opened, report):
    events = [json.loads(entry["message"])["message"] for entry in opened.get_log("performance")]
    urls = [e["params"]["request"]["url"] for e in events if e["method"] == "Network.requestWillBeSent"]
    assert report.as_uri() in urls
    assert not [url for url in urls if not url.startswith("data:") and url != report.as_uri()]
    assert not [entry for entry in opened.get_log("browser") if entry["level"] == "SEVERE"]
    broken = "return [...document.images].filter((image) => !image.naturalWidth).length"
    assert opened.execute_script(broken) == 0 and len(opened.find_elements(By.TAG_NAME, "img")) > 20


def test_accessible_names_and_narrow_screens(opened):
    opened.execute_script("document.querySelectorAll('details').forEach((part) => { part.open = true; })")
    for part in opened.find_elements(By.CSS_SELECTOR, "input, button, select, img, [role], #similarity"):
        if part.get_dom_attribute("role") in ("row", "status") or part.find_elements(By.XPATH, "../figcaption"):
            continue  # named by their content, images by their caption
        assert part.accessible_name, part.get_attribute("outerHTML")[:200]
    reachable = opened.find_elements(By.CSS_SELECTOR, "#patches [tabindex='0']")
    assert len(reachable) == 1  # Tab leaves the grid; arrow keys move within it
    for width in (390, 1100):
        metrics = {"width": width, "height": 800, "deviceScaleFactor": 1, "mobile": width < 500}
        opened.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", metrics)
        assert opened.execute_script("return document.documentElement.scrollWidth") <= width
    opened.execute_cdp_cmd("Emulation.clearDeviceMetricsOverride", {})


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_text_contrast(opened, scheme):
    media = [{"name": "prefers-color-scheme", "value": scheme}]
    opened.execute_cdp_cmd("Emulation.setEmulatedMedia", {"features": media})
    colors = opened.execute_script(
        "const of = (s, p) => getComputedStyle(document.querySelector(s))[p];"
        "return [of('section p', 'color'), of('.note', 'color'), of('section', 'backgroundColor')]"
    )
    text, muted, card = ([int(x) for x in re.findall(r"\d+", color)[:3]] for color in colors)
    assert min(contrast(text, card), contrast(muted, card)) > 4.5  # WCAG 2.2, 1.4.3
    opened.execute_cdp_cmd("Emulation.setEmulatedMedia", {"features": []})


def contrast(color, other):
    """Contrast ratio of two colors in [0, 255] as in WCAG 2.2."""
    srgb = (np.array([color, other]) / 255).T
    linear = np.where(srgb <= 0.04045, srgb / 12.92, ((srgb + 0.055) / 1.055) ** 2.4)
    dark, light = sorted(np.array([0.2126, 0.7152, 0.0722]) @ linear)
    return (light + 0.05) / (dark + 0.05)
