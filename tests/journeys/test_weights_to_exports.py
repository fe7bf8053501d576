"""Weights of every project through every export: at the end of the chain are the outputs of the project's own code."""

import random

import numpy as np
import pytest
import tensorflow as tf
from goldens import DATA, FOUNDATION, foundation_folder, golden_file, golden_io

from keras_vit_cli.main import main

pytestmark = pytest.mark.slow
# Of each source, a model and the name of its logits in the golden file.
SOURCES = {
    "vit_jax_token": "outputs",
    "vit_jax_hybrid_stem": "outputs",
    "big_vision_map": "outputs",
    "big_vision_bit_v1": "outputs",
    "hf_vit": "logits",
    "hf_deit": "logits",
    "timm_token": "logits",
    "timm_gap_fcnorm": "logits",
    "keras_hub_vit": "outputs",
    "model_garden_vit": "outputs",
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
    io = golden_io(source)
    file = DATA / source if (DATA / source).is_dir() else golden_file(tmp_path, source)
    options = ["--formats", format_, "--preprocessing", "half", "--output", str(tmp_path / "exported")]
    assert main(["export", str(file), *options]) == 0
    expected = np.asarray(tf.nn.log_softmax(io[SOURCES[source]]))
    probabilities = np.concatenate([run(tmp_path / "exported", format_, image[None]) for image in io["images"]])
    assert np.abs(np.log(probabilities) - expected).max() < FORMATS[format_]


@pytest.mark.parametrize("name", ["dinov2", "hf_clip", pytest.param("timm_siglip", marks=pytest.mark.extended)])
def test_embeddings_are_those_of_the_source(name, tmp_path):
    (tmp_path / "weights").mkdir()
    folder, io = foundation_folder(tmp_path / "weights", name), golden_io(name)
    arguments = FOUNDATION[name][1]
    if arguments:  # what no file has
        import keras_vit

        folder = tmp_path / "weights" / "model.keras"
        keras_vit.load(tmp_path / "weights", **arguments).save(folder)
    options = ["--formats", "float32", "--signatures", "embed", "--preprocessing", "half"]
    assert main(["export", str(folder), *options, "--output", str(tmp_path / "exported")]) == 0
    side = io["images"].shape[1]
    embeddings = [run(tmp_path / "exported", "float32", image[None, :side, :side]) for image in io["images"]]
    expected = io["outputs"] / np.linalg.norm(io["outputs"], axis=-1, keepdims=True)
    found = np.concatenate(embeddings)
    found = found / np.linalg.norm(found, axis=-1, keepdims=True)
    np.testing.assert_allclose(found, expected, atol=1e-4)


def run(folder, format_, images):
    """The output of the exported file for images (1, H, W, 3) in [-1, 1], which it takes or takes as pixels."""
    if format_ == "saved-model":
        loaded = tf.saved_model.load(str(folder / "saved_model"))
        return loaded.signatures["classify"](images=tf.constant(images))["probabilities"].numpy()
    if format_ == "onnx":
        import onnxruntime

        (file,) = folder.rglob("*.onnx")
        session = onnxruntime.InferenceSession(file)
        return session.run(["probabilities"], {"images": images})[0]
    from ai_edge_litert.interpreter import Interpreter

    (file,) = folder.rglob("*.tflite")
    interpreter = Interpreter(str(file))
    interpreter.allocate_tensors()
    (taken,), (returned,) = interpreter.get_input_details(), interpreter.get_output_details()
    interpreter.set_tensor(taken["index"], ((images + 1) * 127.5).astype("float32"))
    interpreter.invoke()
    return interpreter.get_tensor(returned["index"])
