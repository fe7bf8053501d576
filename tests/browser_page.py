"""A page of the web demo in headless Chromium, as its tests drive it."""

import shutil

import numpy as np
import pytest
from selenium import webdriver
from selenium.webdriver.common.by import By
from selenium.webdriver.support.wait import WebDriverWait

OPTIONS = """--headless --no-sandbox --disable-gpu --disable-quic --no-first-run --disable-background-networking
--disable-component-update --disable-sync --window-size=1100,1400 --use-fake-device-for-media-stream
--use-fake-ui-for-media-stream --enable-unsafe-webgpu --use-webgpu-adapter=swiftshader --enable-features=Vulkan"""
SECONDS = 60


def chromium(profile):
    """A driver; the caller quits it. `profile` is an empty folder."""
    paths = [shutil.which(name) for name in ("chromium", "chromedriver")]
    if not all(paths):
        pytest.fail("These tests need Chromium: apt-get install chromium chromium-driver (or `make browser` as root).")
    options = webdriver.ChromeOptions()
    options.binary_location = paths[0]
    for option in [*OPTIONS.split(), f"--user-data-dir={profile}"]:
        options.add_argument(option)
    options.set_capability("goog:loggingPrefs", {"browser": "ALL", "performance": "ALL"})
    driver = webdriver.Chrome(options, webdriver.ChromeService(paths[1]))
    return driver


def opened(browser, address):
    browser.get_log("browser")
    browser.get_log("performance")
    browser.get(address)
    WebDriverWait(browser, SECONDS).until(
        lambda _: browser.find_element(By.ID, "file").is_enabled() or failure(browser)
    )
    assert not failure(browser)


def failure(browser):
    return browser.find_element(By.ID, "error").text


def answer(browser, path):
    """Gives the page a picture; returns [(label, probability)] in the page's order."""
    browser.execute_script("document.getElementById('latency').textContent = ''")
    browser.find_element(By.ID, "file").send_keys(str(path))
    return await_answer(browser)


def await_answer(browser):
    WebDriverWait(browser, SECONDS).until(lambda _: browser.find_element(By.ID, "latency").text or failure(browser))
    assert not failure(browser)
    rows = [row.text.splitlines() for row in browser.find_elements(By.CSS_SELECTOR, "#classes li")]
    return [(name, float(share.removesuffix(" %")) / 100) for name, share in rows]


def overlay(browser):
    """(height, width, 4) uint8, what is drawn over the picture."""
    drawn = browser.execute_script(
        "const c = document.getElementById('overlay');"
        "return [c.height, c.width, [...c.getContext('2d').getImageData(0, 0, c.width, c.height).data]]"
    )
    return np.array(drawn[2], "uint8").reshape(drawn[0], drawn[1], 4)
