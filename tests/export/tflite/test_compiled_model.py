"""LiteRT's CompiledModel returns what its Interpreter returns."""

import numpy as np
import pytest
from ai_edge_litert.compiled_model import CompiledModel
from ai_edge_litert.interpreter import Interpreter

from keras_vit.export import FORMATS
from keras_vit.export.tflite.interpreter import run_tflite


@pytest.mark.parametrize("name", FORMATS)
def test_equals_the_interpreter(artifacts, images, name):
    expected, _ = run_tflite(artifacts[name], images[:8])
    dtype = np.uint8 if name == "int8" else np.float32
    with CompiledModel.from_file(str(artifacts[name])) as model:
        assert model.get_signature_list() == {"classify": {"inputs": ["images"], "outputs": ["probabilities"]}}
        (input_buffer,), (output_buffer,) = model.create_input_buffers(0), model.create_output_buffers(0)
        found = []
        for image in images[:8]:
            input_buffer.write(image[None].astype(dtype))
            model.run_by_index(0, [input_buffer], [output_buffer])
            found.append(output_buffer.read(4, dtype).copy())
    if name == "int8":
        (details,) = Interpreter(model_path=str(artifacts[name])).get_output_details()
        scale, zero_point = details["quantization"]
        found = (np.float32(found) - zero_point) * scale
    np.testing.assert_allclose(found, expected, atol=2e-3)
