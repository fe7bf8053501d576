"""The process that runs one .tflite file for `compare`. It is started by path and imports LiteRT and NumPy only.

`worker.py FILE THREADS WARMUP` replies in lines of JSON: one when the file is ready, then one for each
number on standard input, which is how many calls to time.
"""

import json
import sys
import time

import numpy as np
from ai_edge_litert.interpreter import Interpreter


def serve(path, num_threads, warmup_runs):
    """Loads and warms up, then times the number of calls in each line of standard input, after an untimed one."""
    base = peak_memory()
    start = time.perf_counter()
    interpreter = Interpreter(model_path=path, num_threads=num_threads)
    interpreter.allocate_tensors()
    load_ms = (time.perf_counter() - start) * 1e3
    for details, values in zip(interpreter.get_input_details(), random_inputs(interpreter)):
        interpreter.set_tensor(details["index"], values)
    warmup = time_calls(interpreter, warmup_runs)
    reply(load_ms=load_ms, first_ms=warmup[0], base_memory_bytes=base)
    for line in sys.stdin:
        interpreter.invoke()  # caches and clocks recover from the turns of the other files
        reply(milliseconds=time_calls(interpreter, int(line)), peak_memory_bytes=peak_memory())


def time_calls(interpreter, count):
    """Milliseconds of each call, without copying inputs and outputs."""
    milliseconds = []
    for _ in range(count):
        start = time.perf_counter()
        interpreter.invoke()
        milliseconds.append((time.perf_counter() - start) * 1e3)
    return milliseconds


def random_inputs(interpreter):
    """The same random values in each process: floats in [-1, 1], integers over the range of (u)int8."""
    random = np.random.default_rng(0)
    inputs = []
    for details in interpreter.get_input_details():
        dtype, shape = np.dtype(details["dtype"]), details["shape"]
        if dtype.kind == "f":
            inputs.append(random.uniform(-1, 1, shape).astype(dtype))
        elif dtype in (np.uint8, np.int8):
            limits = np.iinfo(dtype)
            inputs.append(random.integers(limits.min, limits.max, shape, dtype, endpoint=True))
        else:
            inputs.append(np.zeros(shape, dtype))  # sizes and indices: 0 is always valid
    return inputs


def peak_memory():
    """Peak resident memory of this process in bytes."""
    try:
        # Not getrusage: on Linux a forked process inherits the peak of its parent.
        with open("/proc/self/status") as file:
            return next(int(line.split()[1]) * 1024 for line in file if line.startswith("VmHWM"))
    except FileNotFoundError:
        import resource

        return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * (1 if sys.platform == "darwin" else 1024)


def reply(**values):
    """Sends one line to the parent."""
    print(json.dumps(values), flush=True)


if __name__ == "__main__":
    file, *numbers = sys.argv[1:]
    serve(file, *map(int, numbers))
