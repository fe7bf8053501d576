"""Builds the source archive and the wheel, and uses each in new environments without the repository.

Each environment installs one of the files with [tensorflow,recipes,export], then classifies a photograph, fine-tunes on
a folder, exports, and runs the exported files. Needs Python 3.11, 3.12 and 3.13; some 5 minutes.

Usage:   python tools/check_release.py [--pythons python3.11 python3.12 python3.13]
"""

import argparse
import json
import shutil
import subprocess
import sys
import tempfile
import time
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
VERSIONS = "import sys, keras, tensorflow as tf; print(sys.version.split()[0], tf.__version__, keras.__version__)"
EXTRAS = "tensorflow,recipes,export"
# Photographs of two classes that a small network separates: dark and light noise.
IMAGES = """
import os, sys
import numpy as np
from PIL import Image
random = np.random.default_rng(0)
for name, low in {"dark": 0, "light": 150}.items():
    os.makedirs(f"photos/{name}")
    for number in range(20):
        Image.fromarray(random.integers(low, low + 100, (32, 32, 3), "uint8")).save(f"photos/{name}/{number}.png")
"""
JOURNEY = (
    ("doctor",),
    ("classify", "photos/dark/0.png", "--model", "cifar10/R6_Ti_4"),
    ("finetune", "photos", "--weights", "cifar10/R6_Ti_4"),
    ("export", "runs/photos", "--formats", "float32", "dynamic-int8", "saved-model", "--output", "files"),
    ("classify", "photos/light/0.png", "--model", "files/model-dynamic-int8.tflite"),
    (
        "train",
        "digits-masked-patch",
        "--run.folder",
        "runs/digits",
        "--total-steps",
        "3",
        "--optimizer.warmup-steps",
        "0",
    ),
)


def run(*words, **options) -> str:
    """Output of a command; ends this script with its errors if it fails."""
    done = subprocess.run([str(word) for word in words], capture_output=True, text=True, **options)
    if done.returncode:
        sys.exit(f"{' '.join(map(str, words))}\n{done.stdout[-2000:]}{done.stderr[-3000:]}")
    return done.stdout


def build(folder: Path) -> tuple[Path, Path]:
    """The source archive and the wheel that is built of it, after `twine check`."""
    source = folder / "source"
    for file in run("git", "ls-files", cwd=ROOT).splitlines():
        (source / file).parent.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(ROOT / file, source / file, follow_symlinks=False)
    run(sys.executable, "-m", "venv", folder / "builder")
    python = folder / "builder" / "bin" / "python"
    run(python, "-m", "pip", "install", "--quiet", "build", "twine", "uv")
    run(python, "-m", "build", "--outdir", folder / "dist", source)
    (archive,), (wheel,) = ((folder / "dist").glob(pattern) for pattern in ("*.tar.gz", "*.whl"))
    run(python, "-m", "twine", "check", "--strict", archive, wheel)
    return archive, wheel


def use(file: Path, python: str, folder: Path) -> dict:
    """Installs the file for an interpreter, and runs the journey. Returns seconds and versions."""
    folder.mkdir()
    start = time.perf_counter()
    run(python, "-m", "venv", folder / "env")
    bin_folder = folder / "env" / "bin"
    run(
        folder.parent / "builder" / "bin" / "uv",
        "pip",
        "install",
        "--python",
        bin_folder / "python",
        f"{file}[{EXTRAS}]",
    )
    installed = time.perf_counter()
    run(bin_folder / "python", "-c", IMAGES, cwd=folder)
    for words in JOURNEY:
        run(bin_folder / "keras-vit", *words, cwd=folder)
    metrics = json.loads((folder / "runs" / "photos" / "metrics.json").read_text())
    if metrics["top1"] != 1:
        sys.exit(f"Expected top1 1.0 of the fine-tuned model. Received: {metrics['top1']}")
    return {
        "file": file.name,
        "Python, TensorFlow, Keras": run(bin_folder / "python", "-c", VERSIONS).strip(),
        "install_s": round(installed - start),
        "journey_s": round(time.perf_counter() - installed),
    }


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--pythons", nargs="+", default=["python3.11", "python3.12", "python3.13"])
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        archive, wheel = build(Path(folder))
        print(*(f"{file.name}: {file.stat().st_size / 1e6:.1f} MB" for file in (archive, wheel)), sep="\n")
        # The wheel for each Python, the archive for the oldest and the newest.
        places = [(wheel, python) for python in arguments.pythons]
        places += [(archive, python) for python in dict.fromkeys((arguments.pythons[0], arguments.pythons[-1]))]
        for number, (file, python) in enumerate(places):
            print(json.dumps(use(file, python, Path(folder) / str(number))), flush=True)
            shutil.rmtree(Path(folder) / str(number))


if __name__ == "__main__":
    main()
