r"""What LiteRT's GPU backend (WebGPU) computes for photographs, in Python and in Chromium, compared with Keras.

Requires keras_vit[tensorflow,recipes,export] and a Vulkan driver; for --chromium Chromium, chromedriver and selenium.
Command: python benchmarks/webgpu.py deit_tiny_patch16_224.safetensors --images samples.zip \
             --labels labels.txt --imagenet [--massive] [--chromium swiftshader]
Without a GPU, VK_ICD_FILENAMES names a driver that computes on the CPU: lvp_icd.x86_64.json of Mesa 25 (in Debian,
mesa-vulkan-drivers of the backports), or Chromium's vk_swiftshader_icd.json, which has no half precision. Numbers are
then those of LiteRT's GPU kernels, times are not. --massive adds 1,500 and -900 to two channels of three tokens, as
weights with massive activations have them. "plain" has the layer normalization of the formats for CPUs.
"""

import argparse
import functools
import os
import subprocess
import sys
import tempfile
import threading
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import numpy as np

# A process without TensorFlow, whose LLVM and lavapipe's do not agree: file, images, outputs, "float32" or "float16".
RUN = """
import sys, numpy
from ai_edge_litert.compiled_model import CompiledModel
from ai_edge_litert.options import HardwareAccelerator, Options
options = Options(HardwareAccelerator.GPU)
options.gpu_options.enforce_f32 = sys.argv[4] == "float32"
model = CompiledModel.from_file(sys.argv[1], options=options)
assert model.is_fully_accelerated()
(entry,), (output,) = model.create_input_buffers(0), model.create_output_buffers(0)
found = []
for image in numpy.load(sys.argv[2]):
    entry.write(image[None])
    model.run_by_index(0, [entry], [output])
    found.append(output.read(int(sys.argv[5]), numpy.float32).copy())
numpy.save(sys.argv[3], found)
"""
CHROMIUM = "--headless --no-sandbox --disable-gpu-sandbox --enable-unsafe-webgpu --enable-features=Vulkan"
CLASSIFY = """
const [pixels, accelerator, done] = arguments;
(async () => {
  if (!globalThis.opened || globalThis.opened.accelerator !== accelerator) {
    const { openModel } = await import("./model.js");
    const settings = await (await fetch("settings.json")).json();
    const bytes = new Uint8Array(await (await fetch("model.tflite")).arrayBuffer());
    globalThis.opened = { accelerator, model: await openModel(settings, bytes, accelerator) };
  }
  const adapter = await navigator.gpu.requestAdapter();
  const name = `${adapter.info.vendor} ${adapter.info.architecture}, ${adapter.features.has("shader-f16")}`;
  done([name, ...(await globalThis.opened.model.classify(Float32Array.from(pixels)))]);
})().catch((error) => done(String(error)));
"""


def run_in_python(path, images, folder, precision, classes):
    np.save(folder / "images.npy", images)
    arguments = [path, folder / "images.npy", folder / "found.npy", precision, classes]
    subprocess.run([sys.executable, "-c", RUN, *map(str, arguments)], check=True, stderr=subprocess.DEVNULL)
    return np.load(folder / "found.npy")


def run_in_chromium(page, images, adapter):
    """Probabilities on the GPU of the model on a page of `write_web_page`, and the name of the GPU."""
    from selenium import webdriver

    class Quiet(SimpleHTTPRequestHandler):
        def log_message(self, *arguments):
            pass

    options = webdriver.ChromeOptions()
    for option in (*CHROMIUM.split(), f"--use-webgpu-adapter={adapter}"):
        options.add_argument(option)
    server = ThreadingHTTPServer(("127.0.0.1", 0), functools.partial(Quiet, directory=page))
    threading.Thread(target=server.serve_forever, daemon=True).start()
    driver = webdriver.Chrome(options, webdriver.ChromeService(os.environ.get("CHROMEDRIVER", "/usr/bin/chromedriver")))
    try:
        driver.set_script_timeout(300)
        driver.get(f"http://127.0.0.1:{server.server_port}/")
        found = []
        for image in images:
            answer = driver.execute_async_script(CLASSIFY, image.ravel().tolist(), "webgpu")
            if isinstance(answer, str):
                raise SystemExit(answer)
            found.append(answer[1:])
    finally:
        driver.quit()
        server.shutdown()
    return np.array(found), answer[0]


def report(name, found, expected):
    from photographs import divergence

    difference, agreement = np.abs(found - expected).max(), (found.argmax(-1) == expected.argmax(-1)).mean()
    print(f"| {name} | {agreement:.1%} | {divergence(found, expected):.5f} | {difference:.1e} |", flush=True)


def main():
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("model", help="name or file that keras_vit.load accepts")
    parser.add_argument("--images", nargs="+", required=True, help="folders or zip files of photographs")
    parser.add_argument("--labels", required=True, help='text file, "<file name> <class index>" per line')
    parser.add_argument("--imagenet", action="store_true", help="scale pixels by ImageNet's mean and deviation")
    parser.add_argument("--count", type=int, default=50, help="number of photographs")
    parser.add_argument("--massive", action="store_true", help="add massive activations")
    parser.add_argument("--chromium", metavar="ADAPTER", help='run in Chromium, on its "swiftshader" or "default"')
    arguments = parser.parse_args()
    import keras
    from photographs import read_images

    import keras_vit
    from keras_vit.export import write_tflite, write_web_page
    from keras_vit.export.tflite.convert import convert
    from keras_vit.export.tflite.equalize import folded_copy
    from keras_vit.export.tflite.graph_rewrite import normalize

    model = keras_vit.load(arguments.model, preprocessing="imagenet" if arguments.imagenet else None)
    images, _ = read_images(arguments.images, arguments.labels, model.preprocessing, arguments.count)
    if arguments.massive:
        table = model.positions.table.numpy()
        table[..., [0, 40, 120], 37] += 1500
        table[..., [0, 40, 120], 101] -= 900
        model.positions.table.assign(table)
    logits = model.predict(np.asarray(normalize(images, model.preprocessing)), batch_size=10, verbose=0)
    expected, classes = np.asarray(keras.ops.softmax(logits)), model.num_classes
    with tempfile.TemporaryDirectory() as folder:
        folder = Path(folder)
        files = write_tflite(model, folder, ["float32", "float16", "dynamic-int8"])
        print("| file, arithmetic | agreement | KL divergence | largest difference |\n|---|---|---|---|")
        if arguments.chromium:
            for name, path in files.items():
                page = write_web_page(path, folder / f"page-{name}", [str(i) for i in range(classes)])
                found, gpu = run_in_chromium(page, images, arguments.chromium)
                report(f"{name}, Chromium on {gpu}", found, expected)
            return
        files["float32, plain"] = folder / "plain.tflite"
        files["float32, plain"].write_bytes(convert(folded_copy(model)))
        for name, path in files.items():
            report(f"{name}, half", run_in_python(path, images, folder, "float16", classes), expected)
        for name in ("float32", "float32, plain"):
            report(f"{name}, float32", run_in_python(files[name], images, folder, "float32", classes), expected)


if __name__ == "__main__":
    main()
