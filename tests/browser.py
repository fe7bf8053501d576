"""Headless Chromium, as the tests of pages drive it."""

import shutil

import pytest
from selenium import webdriver

OPTIONS = """--headless --no-sandbox --disable-gpu --disable-quic --no-first-run --disable-background-networking
--disable-component-update --disable-sync --window-size=1100,1400 --use-fake-device-for-media-stream
--use-fake-ui-for-media-stream --enable-unsafe-webgpu --use-webgpu-adapter=swiftshader --enable-features=Vulkan"""


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
