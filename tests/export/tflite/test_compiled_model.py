"""LiteRT's newer API, CompiledModel, which compiles a file for CPU or GPU and fills buffers instead of tensors."""

import numpy as np
import pytest
from ai_edge_litert.compiled_model import CompiledModel
from ai_edge_litert.interpreter import Interpreter

from keras_vit.export import FORMATS
from keras_vit.export.tflite.interpreter import run_tflite


@pytest.mark.parametrize("name", FORMATS)
def test_it_answers_as_the_interpreter(artifacts, pixels, name):
    images = pixels[:8]
    expected, _ = run_tflite(artifacts[name], images)
    dtype = np.uint8 if name == "int8" else np.float32
    with CompiledModel.from_file(str(artifacts[name])) as model:
        assert model.get_signature_list() == {"classify": {"inputs": ["images"], "outputs": ["probabilities"]}}
        (into,), (out,) = model.create_input_buffers(0), model.create_output_buffers(0)
        answers = []
        for image in images:
            into.write(image[None].astype(dtype))
            model.run_by_index(0, [into], [out])
            answers.append(out.read(4, dtype).copy())
    if name == "int8":
        (details,) = Interpreter(model_path=str(artifacts[name])).get_output_details()
        scale, zero_point = details["quantization"]
        answers = (np.float32(answers) - zero_point) * scale
    np.testing.assert_allclose(answers, expected, atol=2e-3)
