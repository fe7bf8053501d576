"""Weights of every project through every export: at the end of the chain are the outputs of the project's own code."""

import random

import numpy as np
import pytest
import tensorflow as tf
from goldens import DATA, FOUNDATION, foundation_folder, golden_file, golden_io

from keras_vit_cli.main import main

pytestmark = pytest.mark.slow
# Of each source a model, and what its files do not specify.
HEADS = ["--num-heads", "3"]
SOURCES = {
    "vit_jax_token": [],
    "vit_jax_hybrid_stem": [],
    "big_vision_map": [],
    "big_vision_bit_v1": ["--image-size", "64"],
    "hf_vit": HEADS,
    "hf_deit": HEADS,
    "timm_token": HEADS,
    "timm_layerscale_reg": HEADS,
    "keras_hub_vit": [],
    "model_garden_vit": HEADS,
}
# Formats, and the largest difference of the logarithms of probabilities.
FORMATS = {"float32": 1e-4, "saved-model": 1e-4, "onnx": 1e-4, "float16": 2e-2, "dynamic-int8": 0.6, "web": 0.6}
CHAINS = [(source, format_) for source in SOURCES for format_ in FORMATS]
MAIN = [(source, list(FORMATS)[number % len(FORMATS)]) for number, source in enumerate(SOURCES)]
OTHERS = random.Random(0).sample([chain for chain in CHAINS if chain not in MAIN], 12)


@pytest.mark.parametrize(
    "source,format_", [*MAIN, *(pytest.param(*chain, marks=pytest.mark.extended) for chain in OTHERS)]
)
def test_probabilities_are_those_of_the_source(source, format_, tmp_path):
    checkpoint = {"keras_hub_vit": DATA / source, "model_garden_vit": DATA / source / "ckpt"}.get(source)
    converted = convert(checkpoint or golden_file(tmp_path, source), tmp_path, SOURCES[source])
    options = ["--formats", format_, "--preprocessing", "half", "--output", str(tmp_path / "exported")]
    assert main(["export", converted, *options]) == 0
    with golden_io(source) as io:
        images, logits = io["images"], io["logits" if "logits" in io else "outputs"]
    probabilities = np.concatenate([run(tmp_path / "exported", format_, image[None]) for image in images])
    assert np.abs(np.log(probabilities) - tf.nn.log_softmax(logits)).max() < FORMATS[format_]


@pytest.mark.parametrize(
    "name", ["dinov2", "hf_clip", "hf_dinov3", pytest.param("timm_siglip", marks=pytest.mark.extended)]
)
def test_embeddings_are_those_of_the_source(name, tmp_path):
    (tmp_path / "weights").mkdir()
    heads = FOUNDATION[name][1].get("num_heads")
    converted = convert(
        foundation_folder(tmp_path / "weights", name), tmp_path, ["--num-heads", str(heads)] if heads else []
    )
    options = ["--formats", "float32", "--signatures", "embed", "--preprocessing", "half"]
    assert main(["export", converted, *options, "--output", str(tmp_path / "exported")]) == 0
    with golden_io(name) as io:
        images, expected = io["images"], io["outputs"]
    found = np.concatenate([run(tmp_path / "exported", "float32", image[None]) for image in images])
    found, expected = (x / np.linalg.norm(x, axis=-1, keepdims=True) for x in (found, expected))
    np.testing.assert_allclose(found, expected, atol=1e-4)


def convert(checkpoint, folder, options) -> str:
    """A .keras file with the weights and with what its files do not specify."""
    assert main(["convert", str(checkpoint), "--output", str(folder / "converted.keras"), *options]) == 0
    return str(folder / "converted.keras")


def run(folder, format_, images):
    """The output of the exported file for images (1, H, W, 3) in [-1, 1], which it takes or takes as pixels."""
    if format_ == "saved-model":
        loaded = tf.saved_model.load(str(folder / "saved_model"))
        return loaded.signatures["classify"](images=tf.constant(images))["probabilities"].numpy()
    if format_ == "onnx":
        import onnxruntime

        (file,) = folder.rglob("*.onnx")
        session = onnxruntime.InferenceSession(file)
        return np.asarray(tf.nn.softmax(session.run(["logits"], {"images": images})[0]))
    from ai_edge_litert.interpreter import Interpreter

    (file,) = folder.rglob("*.tflite")
    interpreter = Interpreter(str(file))
    interpreter.allocate_tensors()
    (taken,), (returned,) = interpreter.get_input_details(), interpreter.get_output_details()
    interpreter.set_tensor(taken["index"], ((images + 1) * 127.5).astype("float32"))
    interpreter.invoke()
    return interpreter.get_tensor(returned["index"])
