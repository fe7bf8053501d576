"""Accuracy of .tflite files as a Snapdragon's NPU computes them, on Qualcomm's simulator, beside LiteRT on this CPU.

Requires keras_vit[tensorflow,recipes,export,npu] and x86-64 Linux.
Command: python benchmarks/photographs.py deit_tiny_patch16_224.safetensors --images samples.zip samples_2.zip \
             --labels labels.txt --imagenet --output exported
         python benchmarks/npu.py exported/model-float32.tflite exported/model-int8.tflite --npu SM8750 \
             --images samples.zip samples_2.zip --labels labels.txt
Calibrate and judge as in photographs.py, so that the photographs to judge on are others. Agreement is with the first
file in LiteRT, which should be float32. Files that the NPU does not run whole are skipped. A photograph takes seconds.
The last two columns compare LiteRT with itself: its own kernels with XNNPACK's, which round otherwise.
"""

import argparse
import tempfile
from pathlib import Path

import numpy as np
from photographs import read_images

import keras_vit
from keras_vit.export import read_description
from keras_vit.export.names import CLASSIFY, INPUT, OUTPUTS
from keras_vit.export.npu import compile_for_npu, find_chip, run_on_simulator
from keras_vit.export.private_apis import inspectable_interpreter
from keras_vit.export.tflite.interpreter import run_tflite


def run_without_xnnpack(file, images):
    """The probabilities (n, classes) of LiteRT's own kernels."""
    runner = inspectable_interpreter(Path(file).read_bytes()).get_signature_runner(CLASSIFY)
    dtype, details = runner.get_input_details()[INPUT]["dtype"], runner.get_output_details()[OUTPUTS[CLASSIFY]]
    outputs = np.stack([runner(**{INPUT: image[None].astype(dtype)})[OUTPUTS[CLASSIFY]][0] for image in images])
    scale, zero_point = details["quantization"]
    return (outputs.astype("float32") - zero_point) * np.float32(scale) if scale else outputs


def comparison(one, other):
    """Cells of a table: fraction of images with the same top-1 class, and largest difference."""
    return f"{(one.argmax(-1) == other.argmax(-1)).mean():.1%} | {abs(one - other).max():.4f}"


def main():
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("files", nargs="+", help="files of write_tflite, float32 first")
    parser.add_argument("--npu", default="SM8750", help="chip of Qualcomm")
    parser.add_argument("--images", nargs="+", required=True, help="folders or zip files of photographs")
    parser.add_argument("--labels", required=True, help='text file, "<file name> <class index>" per line')
    parser.add_argument("--calibrate", type=int, default=100, help="number of photographs that calibrated the files")
    parser.add_argument("--judge", type=int, default=100, help="number of other photographs to judge on")
    arguments = parser.parse_args()
    chip = find_chip(arguments.npu)
    preprocessing = keras_vit.Preprocessing(**read_description(arguments.files[0]).description.preprocessing)
    count = arguments.calibrate + arguments.judge
    images, labels = read_images(arguments.images, arguments.labels, preprocessing, count)
    images, labels = images[arguments.calibrate :], labels[arguments.calibrate :]
    expected, _ = run_tflite(arguments.files[0], images)
    print(f"{chip}, {len(images)} photographs, agreement with {arguments.files[0]}\n")
    ends = "simulator with CPU | largest difference | own kernels with XNNPACK | largest difference"
    print(f"| file | top-1, CPU | agreement | top-1, simulator | agreement | {ends} |")
    print("|---" * 9 + "|", flush=True)
    for file in arguments.files:
        with tempfile.TemporaryDirectory() as folder:
            compiled = Path(folder) / "compiled.tflite"
            report = compile_for_npu(file, chip, compiled)
            if not report.ready or report.num_partitions > 1:
                print(f"| {file} | not whole on the NPU |" + " |" * 7, flush=True)
                continue
            simulated = run_on_simulator(compiled, images)
        found, _ = run_tflite(file, images)
        cells = []
        for outputs in (found, simulated):
            agreement = (outputs.argmax(-1) == expected.argmax(-1)).mean()
            cells.append(f"{(outputs.argmax(-1) == labels).mean():.1%} | {agreement:.1%}")
        cells += [comparison(found, other) for other in (simulated, run_without_xnnpack(file, images))]
        print(f"| {file} | {' | '.join(cells)} |", flush=True)


if __name__ == "__main__":
    main()
