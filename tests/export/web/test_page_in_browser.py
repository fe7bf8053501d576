"""The page in Chromium classifies as Keras does."""

import json
import os
import re
import shutil
import time

import keras
import numpy as np
import pytest
from ai_edge_litert.interpreter import Interpreter
from blocks import ROOT, blocks_of
from browser import chromium
from browser_page import SECONDS, await_predictions, classify, error_message, open_page, overlay
from PIL import Image
from preprocessing_cases import LEVELS, random_cases
from randomize import randomize
from scenes import encoded, opened, scene
from selenium.webdriver.common.by import By
from selenium.webdriver.common.keys import Keys
from selenium.webdriver.support.wait import WebDriverWait
from servers import handler_of, serving

import keras_vit
from keras_vit.export import write_tflite
from keras_vit.export.web.page import PACKAGES, cache_folder, write_web_page
from keras_vit.inspect.attention import rollout

pytestmark = pytest.mark.slow

NAMES = [f"class {i}" for i in range(7)]
SIZES = ((80, 64), (50, 120), (300, 200), (48, 32))  # (width, height) of the test images


@pytest.fixture(scope="module")
def model():
    """Random weights, large enough that predictions differ."""
    keras.utils.set_random_seed(0)
    model = keras_vit.VisionTransformer(
        image_size=(32, 48), patch_size=8, depth=2, width=32, mlp_dim=64, num_heads=2, num_classes=len(NAMES)
    )
    return randomize(model, 0.4, seed=5)


@pytest.fixture(scope="module")
def files(tmp_path_factory):
    """JPEG files of several shapes."""
    folder = tmp_path_factory.mktemp("images")
    for i, size in enumerate(SIZES):
        (folder / f"{i}.jpg").write_bytes(encoded(scene(i, size), quality=95))
    return sorted(folder.iterdir())


@pytest.fixture(scope="module")
def site(tmp_path_factory):
    """A folder for pages."""
    missing = [package.tarball for package in PACKAGES if not (cache_folder() / package.tarball).is_file()]
    if missing:
        pytest.fail(f"{cache_folder()} lacks {', '.join(missing)}: run `make web-runtime`.")
    return tmp_path_factory.mktemp("site")


@pytest.fixture(scope="module")
def page(site, model, files, tmp_path_factory):
    """The address of a page, which is written when it is first asked for if its name is that of a format."""

    def address(name):
        if name in ("float32", "int8") and not (site / name).exists():
            calibration = np.stack([np.asarray(scene(i, (48, 32)), "float32") for i in range(100, 120)])
            signatures = ["classify"] if name == "int8" else ["classify", "attention"]
            exported = write_tflite(model, tmp_path_factory.mktemp(name), [name], calibration, signatures=signatures)
            write_web_page(exported[name], site / name, NAMES, files[:2])
        return f"{server.url}/{name}/"

    with serving(handler_of(site)) as server:
        yield address


@pytest.fixture(scope="module")
def browser(tmp_path_factory):
    driver = chromium(tmp_path_factory.mktemp("chromium"))
    yield driver
    driver.quit()


def preprocessed(model, path):
    with Image.open(path) as image:
        return model.preprocessing(np.asarray(image.convert("RGB")))


def test_predictions_and_attention_equal_keras(browser, page, model, files):
    open_page(browser, page("float32"))
    best, maps = set(), []
    for path in files:
        images = preprocessed(model, path)
        expected = keras.ops.convert_to_numpy(keras.ops.softmax(model(images)))[0]
        order = expected.argsort()[::-1][:5]
        found = classify(browser, path)
        assert [name for name, _ in found] == [NAMES[i] for i in order]
        np.testing.assert_allclose([probability for _, probability in found], expected[order], atol=0.02)
        best.add(order[0])
        assert re.fullmatch(r"\d+(\.\d)? ms", browser.find_element(By.ID, "latency").text)
        assert found[0][0] in browser.find_element(By.ID, "status").text

        attention = keras.ops.convert_to_numpy(model.attention_maps(images))
        patches = np.reshape(rollout(attention), (4, 6))
        drawn = overlay(browser)
        height, width = drawn.shape[:2]
        rows, columns = ((np.arange(n) * 2 + 1) * side // (2 * n) for n, side in ((4, height), (6, width)))
        alpha = drawn[..., 3][rows][:, columns]
        assert np.corrcoef(alpha.ravel(), patches.ravel())[0, 1] > 0.9
        maps.append(alpha)
    assert len(best) > 2 and not np.array_equal(maps[0], maps[1])
    assert "Attention map, highest at the" in browser.find_element(By.ID, "overlay").accessible_name
    events = [json.loads(entry["message"])["message"] for entry in browser.get_log("performance")]
    urls = [e["params"]["request"]["url"] for e in events if e["method"] == "Network.requestWillBeSent"]
    assert any(url.endswith(".wasm") for url in urls)
    assert not [url for url in urls if not url.startswith((page("float32"), "data:", "blob:"))]  # no other origins
    assert not [entry for entry in browser.get_log("browser") if entry["level"] == "SEVERE"]


@pytest.mark.extended
@pytest.mark.parametrize("name", ["float32", "int8"])
def test_code_of_the_guide(browser, page, site, name):
    """The JavaScript of docs/tflite.md, in the page for its import map."""
    (code,) = [block.text for block in blocks_of(ROOT / "docs" / "tflite.md") if block.language == "js"]
    code = re.sub(r"import ({.*}) from (.*);", r"const \1 = await import(\2);", code)
    image = scene(40, (48, 32))
    open_page(browser, page(name))
    found = browser.execute_async_script(
        f"""const [png, done] = arguments;
        async function run() {{
          const file = new Blob([new Uint8Array(png)], {{ type: "image/png" }});
          const lines = [];
          const console = {{ log: (name, probability) => lines.push([name, probability]) }};
          {code}
          done(lines);
        }}
        run().catch((error) => done(String(error)));""",
        list(encoded(image, "PNG")),
    )
    runner = Interpreter(str(site / name / "model.tflite")).get_signature_runner("classify")
    expected = runner(images=np.asarray(image, "float32" if name == "float32" else "uint8")[None])["probabilities"][0]
    expected = expected if name == "float32" else expected / 256
    by_name = dict(zip(NAMES, expected))
    assert len(found) == 5
    # Kernels with and without delegate round differently in int8.
    np.testing.assert_allclose(
        [p for _, p in found], [by_name[n] for n, _ in found], atol=1e-4 if name == "float32" else 0.12
    )


@pytest.mark.extended
def test_another_model_in_the_folder_of_a_page(browser, page, site, files, tmp_path):
    """Only model.tflite is replaced: a gray model of another size, with other names, and without attention."""
    open_page(browser, page("float32"))
    shutil.copytree(site / "float32", site / "updated")
    open_page(browser, page("updated"))
    assert classify(browser, files[0])[0][0] in NAMES and overlay(browser).any()
    keras.utils.set_random_seed(0)
    changed = {"resize": "shortest", "crop_fraction": 0.8, "interpolation": "bicubic", "antialias": True}
    sizes = {"image_size": (40, 24), "patch_size": 8, "depth": 1, "width": 32, "mlp_dim": 32, "num_heads": 2}
    model = randomize(
        keras_vit.VisionTransformer(**sizes, channels=1, num_classes=9, preprocessing=changed), 0.4, seed=1
    )
    names = [f"neu {i}, ä" for i in range(9)]
    (file,) = write_tflite(model, tmp_path, ["float32"], class_names=names).values()
    target = site / "updated" / "model.tflite"
    target.write_bytes(file.read_bytes())
    os.utime(target, (later := time.time() + 10, later))  # servers and browsers count seconds
    open_page(browser, page("updated"))
    found = classify(browser, files[0])
    expected = keras.ops.convert_to_numpy(keras.ops.softmax(model(model.preprocess(str(files[0])))))[0]
    assert [name for name, _ in found] == [names[i] for i in expected.argsort()[::-1][:5]]
    np.testing.assert_allclose([probability for _, probability in found], np.sort(expected)[::-1][:5], atol=0.02)
    assert not browser.find_element(By.ID, "opacity").is_displayed() and not overlay(browser).any()
    assert not browser.find_element(By.ID, "overlay").is_displayed()  # nor for screen readers
    target.write_bytes(b"TFL3")
    os.utime(target, (later + 10, later + 10))
    browser.get(page("updated"))
    assert error_message(browser, wait=True)


@pytest.mark.extended
def test_examples_camera_and_invalid_file(browser, page, files, tmp_path):
    open_page(browser, page("float32"))
    (tmp_path / "notes.jpg").write_text("no image")
    browser.find_element(By.ID, "file").send_keys(str(tmp_path / "notes.jpg"))
    assert "notes.jpg" in error_message(browser, wait=True)
    browser.execute_script("document.getElementById('error').textContent = ''")
    expected = classify(browser, files[1])
    example = browser.find_elements(By.CSS_SELECTOR, "#examples button")[1]
    browser.execute_script("document.getElementById('latency').textContent = ''")
    example.send_keys(Keys.ENTER)  # by keyboard
    assert await_predictions(browser) == expected and not error_message(browser)

    browser.execute_script("document.getElementById('latency').textContent = ''")
    browser.find_element(By.ID, "camera").click()
    WebDriverWait(browser, SECONDS).until(lambda _: browser.find_element(By.ID, "capture").is_displayed())
    browser.find_element(By.ID, "capture").send_keys(Keys.ENTER)
    assert await_predictions(browser) != expected
    assert not browser.find_element(By.ID, "video").is_displayed()
    assert browser.switch_to.active_element.get_attribute("id") == "camera"

    browser.execute_script("HTMLVideoElement.prototype.play = () => Promise.reject(new Error('no power'))")
    browser.find_element(By.ID, "camera").click()
    assert error_message(browser, wait=True) == "The camera is not available: no power."
    tracks = "return document.getElementById('video').srcObject.getTracks().map((track) => track.readyState)"
    assert browser.execute_script(tracks) == ["ended"]
    assert browser.find_element(By.ID, "camera").text == "Use camera"


@pytest.mark.extended
def test_gpu_is_used_if_it_equals_the_cpu(browser, page, files):
    for name in ("float32", "int8"):
        open_page(browser, page(name))
        expected = classify(browser, files[0])
        browser.execute_script("document.getElementById('latency').textContent = ''")
        browser.find_element(By.CSS_SELECTOR, "option[value=webgpu]").click()
        found = await_predictions(browser)
        assert [name for name, _ in found] == [name for name, _ in expected]
        # Chromium's GPU in software computes the int8 file wrongly if Keras 3.15 exported it, and rightly with 3.13.1.
        note = browser.find_element(By.ID, "note").text
        assert not note or name == "int8"
        assert not note or note.startswith("The GPU and the CPU return different results for this file.")
        assert browser.find_element(By.ID, "accelerator").get_attribute("value") == ("wasm" if note else "webgpu")


@pytest.mark.extended
def test_preprocessing_equals_keras(browser, page):
    """From PNG files: JPEG decoders differ."""
    open_page(browser, page("float32"))
    for image, exif, preprocessing in random_cases(1):
        content = encoded(image, "PNG", exif=exif)
        found = browser.execute_async_script(
            """const [png, preprocessing, done] = arguments;
            import("./pixels.js").then(async ({ decodeImage, preprocess }) => {
              const canvas = await decodeImage(new Blob([new Uint8Array(png)], { type: "image/png" }));
              done([...preprocess(canvas, preprocessing).pixels]);
            }).catch((error) => done(String(error)));""",
            list(content),
            preprocessing.get_config(),
        )
        expected = keras.ops.convert_to_numpy(preprocessing.pixels(opened(content)))[0]
        np.testing.assert_allclose(np.reshape(found, expected.shape), expected, atol=LEVELS, err_msg=str(preprocessing))


@pytest.mark.extended
def test_accessible_names_and_page_on_a_phone(browser, page, tmp_path):
    open_page(browser, page("float32"))
    (tmp_path / "portrait.jpg").write_bytes(encoded(scene(0, (600, 800))))
    classify(browser, tmp_path / "portrait.jpg")
    for control in browser.find_elements(By.CSS_SELECTOR, "input, button, select"):
        assert not control.is_displayed() or control.accessible_name, control.get_attribute("outerHTML")
    for width in (390, 1100):
        metrics = {"width": width, "height": 800, "deviceScaleFactor": 1, "mobile": width < 500}
        browser.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", metrics)
        assert browser.execute_script("return document.documentElement.scrollWidth") <= width
        last = "return document.querySelector('#predictions li:last-child').getBoundingClientRect().bottom"
        assert browser.execute_script(last) < 800  # the whole answer, without scrolling
    browser.execute_cdp_cmd("Emulation.clearDeviceMetricsOverride", {})


@pytest.mark.extended
def test_opened_as_a_file_and_missing_file(browser, page, site):
    open_page(browser, page("float32"))
    assert not browser.find_element(By.ID, "opened-as-file").is_displayed()
    browser.get((site / "float32" / "index.html").as_uri())
    assert "python3 -m http.server" in browser.find_element(By.ID, "opened-as-file").text
    shutil.copytree(site / "float32", site / "broken")
    (site / "broken" / "model.tflite").unlink()
    browser.get(page("broken"))
    assert "model.tflite is missing (404)" in error_message(browser, wait=True)
