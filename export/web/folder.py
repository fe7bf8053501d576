"""A folder of static files in which a .tflite file classifies images in the browser, with LiteRT.js."""

import json
import os
import shutil
import tempfile
from collections.abc import Iterable, Sequence
from importlib import resources
from pathlib import Path

from ai_edge_litert.interpreter import Interpreter

from keras_vit.export.labels import class_names
from keras_vit.export.saved_model import PREPROCESSING
from keras_vit.export.tflite.device_form import ATTENTION, CLASSIFY, INPUT, OUTPUTS
from keras_vit.export.web.runtime import PACKAGES, fetch_web_runtime, unpack_web_runtime
from keras_vit.preprocessing import Preprocessing

MODEL = "model.tflite"  # in the folder; demo.js asks for it by this name
IMAGES = (".jpg", ".jpeg", ".png", ".webp")  # what every browser reads


def write_web_demo(tflite_path, folder, labels: Sequence, examples: Iterable = ()) -> Path:
    """Writes a page that classifies an image in the browser and shows the attention on it. It needs no network.

    The folder holds the page, the model, how images are prepared (preprocessing.json, read from beside the model) and
    LiteRT.js, 29 MB of which a visitor loads a third. Any static web server serves it, at any address; for example
    `python3 -m http.server --directory <folder>`. Opened as a file, which browsers do not let read others, it says so.

    Args:
        tflite_path: A file with the signature "classify": `images` (1, H, W, 3), pixels in [0, 255] as float32 or
            quantized uint8, to `probabilities` (1, num_classes). A signature "attention", the same `images` to
            `attention` (1, h, w) over the patch grid, is drawn on the image.
        folder: Where to; must not exist.
        labels: A name for each class, or (WordNet id, words).
        examples: Paths of images that the page offers, .jpg, .png or .webp.

    Returns:
        The folder; its index.html is the page. It appears when it is complete.

    Raises:
        ValueError: The folder exists, there are not as many labels as classes, an example is no image, or the model
            is none that the page can run.
        FileNotFoundError: There is no such model, preprocessing.json or example.
        ConnectionError: LiteRT.js is not in the cache and cannot be downloaded; see `fetch_web_runtime`.
    """
    tflite_path, folder = Path(tflite_path), Path(folder)
    if folder.exists():
        raise ValueError(f"{folder.absolute()} exists already. Remove it or choose another place.")
    preprocessing = _preprocessing(tflite_path)
    signatures = _signatures(tflite_path, preprocessing.image_size)
    names = class_names(labels, signatures[CLASSIFY]["output"]["shape"][-1])
    examples = _checked_examples(examples)
    fetch_web_runtime()
    settings = {
        "name": tflite_path.name,
        "size_bytes": tflite_path.stat().st_size,
        "runtime": f"LiteRT.js {PACKAGES[0].version}",
        "preprocessing": preprocessing.get_config(),
        "signatures": signatures,
        "examples": [{"file": file, "name": path.stem} for file, path in examples.items()],
        "labels": names,
    }
    folder.parent.mkdir(parents=True, exist_ok=True)
    aside = Path(tempfile.mkdtemp(prefix=f".{folder.name}-", dir=folder.parent))
    try:
        for file in resources.files("keras_vit.export.web").iterdir():
            (aside / file.name).write_bytes(file.read_bytes())
        unpack_web_runtime(aside / "litert")
        shutil.copyfile(tflite_path, aside / MODEL)
        (aside / "demo.json").write_text(json.dumps(settings, indent=1) + "\n")
        for file, path in examples.items():
            (aside / file).parent.mkdir(exist_ok=True)
            shutil.copyfile(path, aside / file)
        os.chmod(aside, 0o755)
        os.replace(aside, folder)
    finally:
        shutil.rmtree(aside, ignore_errors=True)
    return folder


def _preprocessing(tflite_path) -> Preprocessing:
    for path in (tflite_path, tflite_path.with_name(PREPROCESSING)):
        if not path.is_file():
            raise FileNotFoundError(f"There is no {path}. A demo needs the .tflite file and {PREPROCESSING} beside it.")
    try:
        return Preprocessing(**json.loads(tflite_path.with_name(PREPROCESSING).read_text()))
    except (TypeError, ValueError) as error:
        raise ValueError(f"{tflite_path.with_name(PREPROCESSING)} is not what an export writes: {error}") from error


def _signatures(tflite_path, image_size) -> dict:
    """What the page must know of each signature; LiteRT.js tells neither scale nor zero point."""
    try:
        interpreter = Interpreter(model_path=str(tflite_path))
    except ValueError as error:
        raise ValueError(f"{tflite_path} is not a .tflite file that LiteRT can read: {error}") from error
    there = interpreter.get_signature_list()
    if CLASSIFY not in there:
        raise ValueError(f"{tflite_path} has no signature {CLASSIFY!r}. It has: {', '.join(there) or 'none'}")
    signatures = {}
    for key, output in ((key, OUTPUTS[key]) for key in (CLASSIFY, ATTENTION) if key in there):
        if there[key] != {"inputs": [INPUT], "outputs": [output]}:
            raise ValueError(f"Signature {key!r} must take {INPUT!r} and return {output!r}. Received: {there[key]}")
        runner = interpreter.get_signature_runner(key)
        into, out = runner.get_input_details()[INPUT], runner.get_output_details()[output]
        if tuple(into["shape"]) != (1, *image_size, 3):
            raise ValueError(
                f"{tflite_path} takes images of the shape {tuple(map(int, into['shape']))}, but {PREPROCESSING} "
                f"beside it makes {(1, *image_size, 3)}. Export them together."
            )
        signatures[key] = {"input": _tensor(INPUT, into), "output": _tensor(output, out)}
    return signatures


def _tensor(name, details) -> dict:
    dtype = details["dtype"].__name__
    if dtype not in ("float32", "uint8"):  # and int32, which no signature of ours has
        raise ValueError(
            f"LiteRT.js takes and returns float32 or uint8, but {name!r} is {dtype}. Export another format."
        )
    scale, zero_point = details["quantization"]
    shape = [int(side) for side in details["shape"]]
    return {"name": name, "dtype": dtype, "shape": shape, "scale": float(scale), "zero_point": int(zero_point)}


def _checked_examples(examples) -> dict[str, Path]:
    """Place in the folder to path. Numbers for names: any name is good as an address then, and none comes twice."""
    paths = [Path(path) for path in examples]
    for path in paths:
        if path.suffix.lower() not in IMAGES:
            raise ValueError(f"An example must be an image ({', '.join(IMAGES)}). Received: {path}")
        if not path.is_file():
            raise FileNotFoundError(f"There is no example {path}.")
    return {f"examples/{i}{path.suffix.lower()}": path for i, path in enumerate(paths, 1)}
