"""Runs .tflite files in a runtime of any age, which is imported from PYTHONPATH alone; NumPy and that runtime suffice.

`runtime_client.py IMAGES.npy FILE...` prints JSON: of each file the classes of the images, or the runtime's error.
"""

import importlib
import json
import sys

import numpy as np

for name in ("ai_edge_litert.interpreter", "tflite_runtime.interpreter", "tensorflow.lite.python.interpreter"):
    try:
        Interpreter = importlib.import_module(name).Interpreter
        break
    except ModuleNotFoundError:
        pass


def classes(file, images):
    """The most likely class of each image."""
    interpreter = Interpreter(file)
    interpreter.allocate_tensors()
    [image], [output] = interpreter.get_input_details(), interpreter.get_output_details()
    found = []
    for pixels in images:
        interpreter.set_tensor(image["index"], pixels[None].astype(image["dtype"]))
        interpreter.invoke()
        found.append(int(interpreter.get_tensor(output["index"])[0].argmax()))
    return found


results = {}
for file in sys.argv[2:]:
    try:
        results[file] = classes(file, np.load(sys.argv[1]))
    except (ValueError, RuntimeError) as error:
        results[file] = str(error)
print(json.dumps(results))
