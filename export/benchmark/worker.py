"""The process that runs one .tflite file for `benchmark`. Started by its path, so that it imports only what it needs.

`python benchmark_worker.py time FILE THREADS WARMUP SEED` answers in lines of JSON: one when the file is ready, then
one for each number on standard input, which is how many calls to time. `profile FILE THREADS RUNS SEED` prints the
profiler's own text.
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

# The profiler is in LiteRT's C API (litert/c/litert_profiler.h), not in its Python package. Its functions have had
# these arguments since:
PROFILER_SINCE = (2, 3)
# LiteRtElementType of litert/c/litert_model_types.h.
ELEMENTS = {"float32": 1, "int32": 2, "uint8": 3, "int64": 4, "bool": 6, "int16": 7, "int8": 9, "float16": 10}
CPU, WRITE = 1, 1  # LiteRtHwAccelerators, LiteRtTensorBufferLockMode
MAX_RANK = 8


def main(mode, path, threads, count, seed):
    """Does what the mode says."""
    {"time": serve, "profile": profile}[mode](path, int(threads), int(count), int(seed))


def serve(path, threads, warmup, seed):
    """Loads and warms up, then times as many calls as each line asks for, after one that is not timed."""
    base = peak_memory()
    start = time.perf_counter()
    interpreter = Interpreter(model_path=path, num_threads=threads)
    interpreter.allocate_tensors()
    load_ms = (time.perf_counter() - start) * 1e3
    for details, values in zip(interpreter.get_input_details(), random_inputs(interpreter, seed)):
        interpreter.set_tensor(details["index"], values)
    warm = times(interpreter, warmup)
    say(load_ms=load_ms, first_ms=warm[0], base_memory_bytes=base)
    for line in sys.stdin:
        interpreter.invoke()  # caches and cores wake up from the pause, in which another file ran
        say(milliseconds=times(interpreter, int(line)), peak_memory_bytes=peak_memory())


def times(interpreter, count):
    """Milliseconds of each call; copying in and out is not in them."""
    milliseconds = []
    for _ in range(count):
        start = time.perf_counter()
        interpreter.invoke()
        milliseconds.append((time.perf_counter() - start) * 1e3)
    return milliseconds


def random_inputs(interpreter, seed):
    """Pixels for every input: floats in [-1, 1], bytes of all values."""
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
            inputs.append(np.zeros(shape, dtype))  # sizes and indices: the one value that is always allowed
    return inputs


def peak_memory():
    """Most memory that this process has held, bytes."""
    try:
        # Not getrusage: there, a child also answers for the parent that it was forked from.
        with open("/proc/self/status") as file:
            return next(int(line.split()[1]) * 1024 for line in file if line.startswith("VmHWM"))
    except FileNotFoundError:
        import resource

        return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * (1 if sys.platform == "darwin" else 1024)


def say(**answer):
    """One line for the parent."""
    print(json.dumps(answer), flush=True)


def profile(path, threads, runs, seed):
    """Runs the file on LiteRT's compiled model with its profiler on, and prints the profiler's summary."""
    installed = version("ai-edge-litert")
    if tuple(map(int, installed.split(".")[:2])) < PROFILER_SINCE:
        needed = ".".join(map(str, PROFILER_SINCE))
        sys.exit(f"the profiler needs ai-edge-litert {needed} or newer, here is {installed}")
    library = C()
    interpreter = Interpreter(model_path=path)
    environment = library.new("LiteRtCreateEnvironment", 0, None)
    model = library.new("LiteRtCreateModelFromFile", environment, path.encode())
    options = library.new("LiteRtCreateOptions")
    library.call("LiteRtSetOptionsHardwareAccelerators", options, CPU)
    texts = {"runtime_options_string": "enable_profiling = true\n", "xnnpack": f"num_threads = {threads}\n"}
    for name, text in texts.items():
        library.call("LiteRtAddOpaqueOptions", options, library.options(name, text))
    compiled = library.new("LiteRtCreateCompiledModel", environment, model, options)
    signature = ctypes.c_size_t(main_signature(path))
    inputs = library.buffers("Input", environment, compiled, signature, interpreter.get_input_details())
    outputs = library.buffers("Output", environment, compiled, signature, interpreter.get_output_details())
    for buffer, values in zip(inputs, random_inputs(interpreter, seed)):
        address = library.new("LiteRtLockTensorBuffer", buffer, last=(WRITE,))
        ctypes.memmove(address, values.tobytes(), values.nbytes)
        library.call("LiteRtUnlockTensorBuffer", buffer)
    profiler = library.new("LiteRtCompiledModelGetProfiler", compiled)
    arrays = [(ctypes.c_void_p * len(buffers))(*(buffer.value for buffer in buffers)) for buffers in (inputs, outputs)]
    sizes = [ctypes.c_size_t(len(buffers)) for buffers in (inputs, outputs)]
    for run in range(-2, runs):
        if run == 0:
            library.call("LiteRtStartProfiler", profiler)
        library.call("LiteRtRunCompiledModel", compiled, signature, sizes[0], arrays[0], sizes[1], arrays[1])
    library.call("LiteRtStopProfiler", profiler)
    print(ctypes.string_at(library.new("LiteRtGetProfileSummary", profiler, compiled).value).decode())


def main_signature(path):
    """Number of the signature that computes the first subgraph, which is the one that `serve` runs."""
    model = schema.Model.GetRootAs(Path(path).read_bytes())
    subgraphs = [model.SignatureDefs(i).SubgraphIndex() for i in range(model.SignatureDefsLength())]
    return subgraphs.index(0) if 0 in subgraphs else 0


class C:
    """LiteRT's C library; a status that is not 0 ends the process with the function's name."""

    def __init__(self):
        files = sorted(Path(ai_edge_litert.__file__).parent.glob("libLiteRt.*"))
        if not files:
            sys.exit("ai-edge-litert comes without libLiteRt here")
        self.library, self.kept = ctypes.CDLL(str(files[0])), []

    def call(self, name, *arguments):
        """Calls a function that returns a status."""
        status = getattr(self.library, name)(*arguments)
        if status:
            sys.exit(f"{name} returned {status}")

    def new(self, name, *arguments, last=()):
        """Calls a function that gives a pointer through an argument, its last but those of `last`."""
        pointer = ctypes.c_void_p()
        self.call(name, *arguments, ctypes.byref(pointer), *last)
        return pointer

    def options(self, name, text):
        """Options in TOML, as litert/c/options/litert_runtime_options.cc and litert_cpu_options.cc write them."""
        content, free = ctypes.create_string_buffer(text.encode()), ctypes.CFUNCTYPE(None, ctypes.c_void_p)(_nothing)
        self.kept += [content, free]
        return self.new("LiteRtCreateOpaqueOptions", name.encode(), ctypes.cast(content, ctypes.c_void_p), free)

    def buffers(self, kind, environment, compiled, signature, tensors):
        """A buffer for each input or output."""
        made = []
        for number, details in enumerate(tensors):
            place = (compiled, signature, ctypes.c_size_t(number))
            needed = self.new(f"LiteRtGetCompiledModel{kind}BufferRequirements", *place)
            # LiteRtRankedTensorType: element type, rank (7 bits) and "has strides" (1 bit), sizes, strides.
            shape = [int(size) for size in details["shape"]]
            padding = [0] * (2 * MAX_RANK - len(shape))
            element = ELEMENTS[np.dtype(details["dtype"]).name]
            ranked = (ctypes.c_int32 * (2 + 2 * MAX_RANK))(element, len(shape), *shape, *padding)
            made.append(self.new("LiteRtCreateManagedTensorBufferFromRequirements", environment, ranked, needed))
        return made


def _nothing(pointer):
    """The options' text is Python's to free."""


if __name__ == "__main__":
    main(*sys.argv[1:])
