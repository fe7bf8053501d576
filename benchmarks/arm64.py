"""Compares .tflite files on Arm64, LiteRT's aarch64 build under qemu, with LiteRT on this machine.

Requires keras_vit[tensorflow,export], Debian's qemu-user-static, and the arm64 architecture in apt (as root):
    dpkg --add-architecture arm64 && apt-get update && apt-get install qemu-user-static
Command: python benchmarks/arm64.py exported/model-*.tflite --images FOLDER     # FOLDER/.../*.jpg
Python, its libraries, NumPy and LiteRT for Arm64 are downloaded once into --root. Top-1 classes and the largest
difference of probabilities are compared; latency under emulation is meaningless. LiteRT 2.3 for Arm64 crashes under
qemu 7.2 when it opens a file; 1.4 works.
"""

import argparse
import subprocess
import sys
import tempfile
import zipfile
from importlib.metadata import version
from pathlib import Path

import numpy as np

DEBIAN = """python3.11-minimal libpython3.11-minimal libpython3.11-stdlib libc6 libgcc-s1 libstdc++6 libexpat1 zlib1g
libffi8 libbz2-1.0 liblzma5 libssl3 libcrypt1""".split()
WHEELS = ("numpy", "flatbuffers", "protobuf")
LITERT = "ai-edge-litert==1.4.0"
PLATFORMS = [f"--platform=manylinux_2_{minor}_aarch64" for minor in (17, 27, 28)] + ["--platform=manylinux2014_aarch64"]
PROGRAM = """
import sys, numpy as np
from ai_edge_litert.interpreter import Interpreter
pixels = np.load(sys.argv[1])
for path in sys.argv[2:]:
    runner = Interpreter(path, num_threads=1).get_signature_runner("classify")
    kind = runner.get_input_details()["images"]["dtype"]
    found = [runner(images=one[None].astype(kind))["probabilities"][0] for one in pixels]
    out = runner.get_output_details()["probabilities"]
    scale, zero = out["quantization"] if out["dtype"] != np.float32 else (1.0, 0)
    np.save(f"{path}.{sys.platform}.npy", (np.array(found, "float32") - zero) * scale)
"""


def set_up(root: Path):
    """Downloads Python and LiteRT for Arm64 into a folder, once."""
    if (root / "ready").exists():
        return
    system, site = root / "system", root / "site"
    for folder in (system, site, root / "downloads"):
        folder.mkdir(parents=True, exist_ok=True)
    subprocess.run(
        ["apt-get", "-qq", "download", *[f"{name}:arm64" for name in DEBIAN]], cwd=root / "downloads", check=True
    )
    for package in (root / "downloads").glob("*.deb"):
        subprocess.run(["dpkg", "-x", package, system], check=True)
    wheels = [LITERT, *(f"{name}=={version(name)}" for name in WHEELS)]
    fetch = [sys.executable, "-m", "pip", "download", "-q", "--no-deps", "--only-binary=:all:", "--python-version=3.11"]
    subprocess.run([*fetch, *PLATFORMS, "-d", str(root / "downloads"), *wheels], check=True)
    for wheel in (root / "downloads").glob("*.whl"):
        with zipfile.ZipFile(wheel) as archive:
            archive.extractall(site)
    (root / "ready").touch()


def load_images(folder: Path, size: int, count: int) -> np.ndarray:
    """(n, size, size, 3) uint8, resized without keeping the aspect ratio: the same pixels for both machines."""
    from PIL import Image

    files = sorted(path for path in folder.rglob("*") if path.suffix.lower() in (".jpg", ".jpeg", ".png"))
    if not files:
        raise SystemExit(f"{folder} has no JPEG or PNG files.")
    chosen = np.random.default_rng(0).permutation(len(files))[:count]
    return np.stack([np.asarray(Image.open(files[i]).convert("RGB").resize((size, size))) for i in chosen])


def main():
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("files", nargs="+", type=Path)
    parser.add_argument("--images", type=Path, required=True)
    parser.add_argument("--count", type=int, default=20)
    parser.add_argument("--root", type=Path, default=Path.home() / ".cache" / "keras_vit-arm64")
    arguments = parser.parse_args()
    from keras_vit.export import read_description

    set_up(arguments.root)
    emulator = [
        "qemu-aarch64-static",
        "-cpu",
        "cortex-a76",
        "-L",
        arguments.root / "system",
        "-E",
        f"PYTHONPATH={arguments.root / 'site'}",
    ]
    print("| file | images | same top-1 | largest difference |\n|---|---|---|---|")
    for path in arguments.files:
        size = read_description(path).signatures["classify"].inputs[0].shape[1]
        pixels = load_images(arguments.images, size, arguments.count)
        results = []
        for python in ([sys.executable], [*emulator, arguments.root / "system" / "usr" / "bin" / "python3.11"]):
            with tempfile.TemporaryDirectory() as folder:
                copy, inputs = Path(folder) / path.name, Path(folder) / "pixels.npy"
                copy.write_bytes(path.read_bytes())
                np.save(inputs, pixels)
                subprocess.run([*python, "-c", PROGRAM, inputs, copy], check=True, stderr=subprocess.DEVNULL)
                results.append(np.load(f"{copy}.linux.npy"))
        native, arm64 = results
        same = (native.argmax(-1) == arm64.argmax(-1)).mean()
        print(f"| {path.name} | {len(pixels)} | {same:.1%} | {np.abs(native - arm64).max():.1e} |", flush=True)


if __name__ == "__main__":
    main()
