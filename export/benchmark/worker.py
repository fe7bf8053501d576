"""The process that runs one .tflite file for `benchmark`. It is started by path and imports LiteRT and NumPy only.

`worker.py time FILE THREADS WARMUP SEED` replies in lines of JSON: one when the file is ready, then one for each number
on standard input, which is how many calls to time. `worker.py profile FILE THREADS RUNS SEED` prints the text of
LiteRT's profiler.

The profiler is called through LiteRT's C API with ctypes. ai-edge-litert 2.3.0 has no other way to measure operations:
neither its `Interpreter` nor its `CompiledModel` has a profiler in Python, its tool `litert-benchmark` reports the
latency of whole calls, and TFLite's `benchmark_model` is not in the package.
"""

import ctypes
import json
import sys
import time
from importlib.metadata import version
from pathlib import Path

import ai_edge_litert
import numpy as np
from ai_edge_litert import schema_py_generated as schema
from ai_edge_litert.interpreter import Interpreter

# First version in which the functions of litert/c/litert_profiler.h have the arguments used below.
PROFILER_SINCE = (2, 3)
# LiteRtElementType of litert/c/litert_model_types.h.
ELEMENT_TYPES = {"float32": 1, "int32": 2, "uint8": 3, "int64": 4, "bool": 6, "int16": 7, "int8": 9, "float16": 10}
CPU, WRITE = 1, 1  # LiteRtHwAccelerators, LiteRtTensorBufferLockMode
MAX_RANK = 8


def main(mode, path, num_threads, count, seed):
    {"time": serve, "profile": profile}[mode](path, int(num_threads), int(count), int(seed))


def serve(path, num_threads, warmup_runs, seed):
    """Loads and warms up, then times the number of calls in each line of standard input, after an untimed one."""
    base = peak_memory()
    start = time.perf_counter()
    interpreter = Interpreter(model_path=path, num_threads=num_threads)
    interpreter.allocate_tensors()
    load_ms = (time.perf_counter() - start) * 1e3
    for details, values in zip(interpreter.get_input_details(), random_inputs(interpreter, seed)):
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


def random_inputs(interpreter, seed):
    """Random values for every input: floats in [-1, 1], integers over the range of (u)int8."""
    random = np.random.default_rng(seed)
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


def profile(path, num_threads, num_runs, seed):
    """Runs the file on LiteRT's compiled model with the profiler on, and prints the profiler's summary."""
    installed = version("ai-edge-litert")
    if tuple(map(int, installed.split(".")[:2])) < PROFILER_SINCE:
        required = ".".join(map(str, PROFILER_SINCE))
        sys.exit(f"the profiler requires ai-edge-litert {required} or newer; installed: {installed}")
    litert = LiteRtLibrary()
    interpreter = Interpreter(model_path=path)
    environment = litert.create("LiteRtCreateEnvironment", 0, None)
    model = litert.create("LiteRtCreateModelFromFile", environment, path.encode())
    options = litert.create("LiteRtCreateOptions")
    litert.call("LiteRtSetOptionsHardwareAccelerators", options, CPU)
    texts = {"runtime_options_string": "enable_profiling = true\n", "xnnpack": f"num_threads = {num_threads}\n"}
    for name, text in texts.items():
        litert.call("LiteRtAddOpaqueOptions", options, litert.opaque_options(name, text))
    compiled = litert.create("LiteRtCreateCompiledModel", environment, model, options)
    signature = ctypes.c_size_t(main_signature(path))
    inputs = litert.buffers("Input", environment, compiled, signature, interpreter.get_input_details())
    outputs = litert.buffers("Output", environment, compiled, signature, interpreter.get_output_details())
    for buffer, values in zip(inputs, random_inputs(interpreter, seed)):
        address = litert.create("LiteRtLockTensorBuffer", buffer, after=(WRITE,))
        ctypes.memmove(address, values.tobytes(), values.nbytes)
        litert.call("LiteRtUnlockTensorBuffer", buffer)
    profiler = litert.create("LiteRtCompiledModelGetProfiler", compiled)
    arrays = [(ctypes.c_void_p * len(buffers))(*(buffer.value for buffer in buffers)) for buffers in (inputs, outputs)]
    sizes = [ctypes.c_size_t(len(buffers)) for buffers in (inputs, outputs)]
    for run in range(-2, num_runs):
        if run == 0:
            litert.call("LiteRtStartProfiler", profiler)
        litert.call("LiteRtRunCompiledModel", compiled, signature, sizes[0], arrays[0], sizes[1], arrays[1])
    litert.call("LiteRtStopProfiler", profiler)
    print(ctypes.string_at(litert.create("LiteRtGetProfileSummary", profiler, compiled).value).decode())


def main_signature(path):
    """Index of the signature of the first subgraph, which is the one that `serve` runs."""
    model = schema.Model.GetRootAs(Path(path).read_bytes())
    subgraphs = [model.SignatureDefs(i).SubgraphIndex() for i in range(model.SignatureDefsLength())]
    return subgraphs.index(0) if 0 in subgraphs else 0


class LiteRtLibrary:
    """LiteRT's C library. A status other than 0 ends the process with the name of the function."""

    def __init__(self):
        files = sorted(Path(ai_edge_litert.__file__).parent.glob("libLiteRt.*"))
        if not files:
            sys.exit("ai-edge-litert has no libLiteRt on this platform")
        self.library, self.references = ctypes.CDLL(str(files[0])), []

    def call(self, name, *arguments):
        """Calls a function that returns a status."""
        status = getattr(self.library, name)(*arguments)
        if status:
            sys.exit(f"{name} returned {status}")

    def create(self, name, *arguments, after=()):
        """Calls a function that returns a pointer through an argument, the last one before those of `after`."""
        pointer = ctypes.c_void_p()
        self.call(name, *arguments, ctypes.byref(pointer), *after)
        return pointer

    def opaque_options(self, name, text):
        """Options as TOML, the format of litert/c/options/litert_runtime_options.cc and litert_cpu_options.cc."""
        content, free = ctypes.create_string_buffer(text.encode()), ctypes.CFUNCTYPE(None, ctypes.c_void_p)(_no_op)
        self.references += [content, free]
        return self.create("LiteRtCreateOpaqueOptions", name.encode(), ctypes.cast(content, ctypes.c_void_p), free)

    def buffers(self, kind, environment, compiled, signature, tensors):
        """A buffer for each input or output."""
        buffers = []
        for index, details in enumerate(tensors):
            place = (compiled, signature, ctypes.c_size_t(index))
            requirements = self.create(f"LiteRtGetCompiledModel{kind}BufferRequirements", *place)
            # LiteRtRankedTensorType: element type, rank (7 bits) and "has strides" (1 bit), sizes, strides.
            shape = [int(size) for size in details["shape"]]
            padding = [0] * (2 * MAX_RANK - len(shape))
            element = ELEMENT_TYPES[np.dtype(details["dtype"]).name]
            tensor_type = (ctypes.c_int32 * (2 + 2 * MAX_RANK))(element, len(shape), *shape, *padding)
            arguments = (environment, tensor_type, requirements)
            buffers.append(self.create("LiteRtCreateManagedTensorBufferFromRequirements", *arguments))
        return buffers


def _no_op(pointer):
    """Python frees the text of the options."""


if __name__ == "__main__":
    main(*sys.argv[1:])
