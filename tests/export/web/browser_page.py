"""Controls the web page in a browser."""

import numpy as np
from selenium.webdriver.common.by import By
from selenium.webdriver.support.wait import WebDriverWait

SECONDS = 60


def open_page(browser, url):
    browser.get_log("browser")
    browser.get_log("performance")
    browser.get(url)
    is_ready = browser.find_element(By.ID, "file").is_enabled
    WebDriverWait(browser, SECONDS).until(lambda _: is_ready() or error_message(browser))
    assert not error_message(browser)


def error_message(browser, wait=False):
    if wait:
        WebDriverWait(browser, SECONDS).until(lambda _: error_message(browser))
    return browser.find_element(By.ID, "error").text


def classify(browser, path):
    """Chooses an image file; returns [(class name, probability)] in the order of the page."""
    browser.execute_script("document.getElementById('latency').textContent = ''")
    browser.find_element(By.ID, "file").send_keys(str(path))
    return await_predictions(browser)


def await_predictions(browser):
    latency = browser.find_element(By.ID, "latency")
    WebDriverWait(browser, SECONDS).until(lambda _: latency.text or error_message(browser))
    assert not error_message(browser)
    rows = [row.text.splitlines() for row in browser.find_elements(By.CSS_SELECTOR, "#predictions li")]
    return [(name, float(percent.removesuffix(" %")) / 100) for name, percent in rows]


def overlay(browser):
    """The attention map over the image, (height, width, 4) uint8 RGBA."""
    drawn = browser.execute_script(
        "const c = document.getElementById('overlay');"
        "return [c.height, c.width, [...c.getContext('2d').getImageData(0, 0, c.width, c.height).data]]"
    )
    return np.array(drawn[2], "uint8").reshape(drawn[0], drawn[1], 4)
