"""TFLite formats of a trained network judged on labeled photographs: accuracy, agreement with Keras, and latency.

Requires keras_vit[tensorflow,recipes,export].
Command: python benchmarks/photographs.py deit_tiny_patch16_224.safetensors --images samples.zip \
             --judge-images samples_2.zip --labels labels.txt --imagenet
Images: folders or zip files of photographs. Labels: one "<file name> <class index>" per line. The photographs are
shuffled; the first ones calibrate, the following ones judge, or those of --judge-images, if there are any. All files
are timed in turns of ten calls.
"""

import argparse
import io
import tempfile
import zipfile
from functools import partial
from pathlib import Path

import keras
import numpy as np

import keras_vit
from keras_vit.export import FORMATS, write_tflite
from keras_vit.export.benchmark import compare
from keras_vit.export.tflite.graph_rewrite import normalize
from keras_vit.export.tflite.interpreter import run_tflite
from keras_vit.export.tflite.quantize import STATIC
from keras_vit.export.tflite.sensitivity import analyze_sensitivity, sensitivity_table


def photographs(paths):
    """Yields (file name, bytes) of all files in folders and zip files."""
    for path in map(Path, paths):
        if path.is_dir():
            yield from ((file.name, file.read_bytes()) for file in sorted(path.rglob("*")) if file.is_file())
        else:
            with zipfile.ZipFile(path) as archive:
                names = sorted(name for name in archive.namelist() if not name.endswith("/"))
                yield from ((Path(name).name, archive.read(name)) for name in names)


def read_images(paths, labels_file, preprocessing, count, seed=0):
    """`count` images (n, H, W, 3) float32 of whole pixels in [0, 255], and their labels (n,)."""
    from PIL import Image

    labels = dict(line.rsplit(maxsplit=1) for line in Path(labels_file).read_text().splitlines() if line.strip())
    found = [(name, content) for name, content in photographs(paths) if name in labels]
    chosen = [found[i] for i in np.random.default_rng(seed).permutation(len(found))[:count]]
    if len(chosen) < count:
        raise SystemExit(f"Expected at least {count} photographs with labels. Received: {len(chosen)}")
    mean, std = (255 * np.array(values, "float32") for values in (preprocessing.mean, preprocessing.std))
    pixels = []
    for _, content in chosen:
        scaled = np.asarray(preprocessing(np.asarray(Image.open(io.BytesIO(content)).convert("RGB"))))[0]
        pixels.append(np.round(np.clip(scaled * std + mean, 0, 255)))
    return np.stack(pixels), np.array([int(labels[name]) for name, _ in chosen])


def divergence(found, expected):
    """Mean Kullback-Leibler divergence of probabilities (n, classes) from those of Keras, in nats.

    Probabilities are clipped to at least 0.001, because uint8 has no smaller ones.
    """
    found, expected = (np.maximum(x.astype("float64"), 1e-3) for x in (found, expected))
    found, expected = (x / x.sum(axis=-1, keepdims=True) for x in (found, expected))
    return float((expected * np.log(expected / found)).sum(axis=-1).mean())


def main():
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("model", help="name or file that keras_vit.load accepts")
    parser.add_argument("--images", nargs="+", required=True, help="folders or zip files of photographs")
    parser.add_argument("--judge-images", nargs="+", help="folders or zip files of photographs to judge on instead")
    parser.add_argument("--labels", required=True, help='text file, "<file name> <class index>" per line')
    parser.add_argument("--imagenet", action="store_true", help="scale pixels by ImageNet's mean and deviation")
    parser.add_argument("--formats", nargs="+", default=list(FORMATS), choices=FORMATS)
    parser.add_argument("--calibrate", type=int, default=100, help="number of photographs to calibrate on")
    parser.add_argument("--judge", type=int, default=300, help="number of other photographs to judge on")
    parser.add_argument("--num-runs", type=int, default=50, help="timed calls of each file")
    parser.add_argument("--no-equalize", action="store_true", help="do not rotate tokens of integer files")
    parser.add_argument("--sensitivity", action="store_true", help="only list the parts by the error that each causes")
    parser.add_argument("--output", help="folder to keep the files in")
    arguments = parser.parse_args()
    model = keras_vit.load(arguments.model, preprocessing="imagenet" if arguments.imagenet else None)
    prepare = partial(read_images, labels_file=arguments.labels, preprocessing=model.preprocessing)
    if arguments.judge_images:
        calibration, _ = prepare(arguments.images, count=arguments.calibrate)
        images, labels = prepare(arguments.judge_images, count=arguments.judge)
    else:
        images, labels = prepare(arguments.images, count=arguments.calibrate + arguments.judge)
        (calibration, images), labels = np.split(images, [arguments.calibrate]), labels[arguments.calibrate :]
    if arguments.sensitivity:
        for name in [name for name in arguments.formats if name in STATIC]:
            print(sensitivity_table(name, analyze_sensitivity(model, name, calibration, images)), flush=True)
        return
    scaled = np.asarray(normalize(images, model.preprocessing))
    expected = np.asarray(keras.ops.softmax(model.predict(scaled, batch_size=20, verbose=0)))
    top1 = (expected.argmax(-1) == labels).mean()
    print(
        f"{arguments.model}: top-1 {top1:.2%} of {len(images)} photographs; {arguments.calibrate} others calibrated\n"
    )
    with tempfile.TemporaryDirectory() as folder:
        formats = tuple(dict.fromkeys(("float32", *arguments.formats)))
        equalize = not arguments.no_equalize
        files = write_tflite(model, arguments.output or folder, formats, calibration, equalize=equalize)
        times = dict(zip(files, compare(list(files.values()), 2, arguments.num_runs)))
        print("| format | top-1 lost | agreement | KL divergence | median | / float32 | pieces | size |")
        print("|---|---|---|---|---|---|---|---|")
        for name, path in files.items():
            found, _ = run_tflite(path, images)
            lost = 100 * (top1 - (found.argmax(-1) == labels).mean())
            agreement = (found.argmax(-1) == expected.argmax(-1)).mean()
            time, ratio = times[name].median_ms, times[name].median_ms / times["float32"].median_ms
            measured = (
                f"{time:.1f} ms | {ratio:.2f} | {times[name].num_partitions} | {path.stat().st_size / 1e6:.1f} MB"
            )
            values = f"{lost:+.2f} | {agreement:.1%} | {divergence(found, expected):.4f} | {measured}"
            print(f"| {name} | {values} |", flush=True)


if __name__ == "__main__":
    main()
