"""A page of the web demo in a browser, as its tests use it."""

import numpy as np
from selenium.webdriver.common.by import By
from selenium.webdriver.support.wait import WebDriverWait

SECONDS = 60


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
    """Gives the page an image; returns [(label, probability)] in the page's order."""
    browser.execute_script("document.getElementById('latency').textContent = ''")
    browser.find_element(By.ID, "file").send_keys(str(path))
    return await_answer(browser)


def await_answer(browser):
    WebDriverWait(browser, SECONDS).until(lambda _: browser.find_element(By.ID, "latency").text or failure(browser))
    assert not failure(browser)
    rows = [row.text.splitlines() for row in browser.find_elements(By.CSS_SELECTOR, "#classes li")]
    return [(name, float(share.removesuffix(" %")) / 100) for name, share in rows]


def overlay(browser):
    """(height, width, 4) uint8, what is drawn over the image."""
    drawn = browser.execute_script(
        "const c = document.getElementById('overlay');"
        "return [c.height, c.width, [...c.getContext('2d').getImageData(0, 0, c.width, c.height).data]]"
    )
    return np.array(drawn[2], "uint8").reshape(drawn[0], drawn[1], 4)
