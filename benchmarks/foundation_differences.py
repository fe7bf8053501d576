"""Largest differences of foundation models to the code of those who publish them, by family.

Requires keras_vit[tensorflow]
Command: python benchmarks/foundation_differences.py
The models are small, with random weights, and their outputs were computed by `benchmarks/foundation_goldens.py`; the
differences are divided by the standard deviation of the outputs.
"""

import sys
import tempfile
from pathlib import Path

import numpy as np

import keras_vit

sys.path.insert(0, str(Path(__file__).parents[1] / "tests"))

from goldens import FOUNDATION, foundation_folder, golden_io

PATCH = 7


def differences(name):
    """Largest difference for each size of images, divided by the standard deviation of the outputs."""
    io = golden_io(name)
    for outputs in (key for key in io.files if key.startswith("outputs")):
        images = io[outputs.replace("outputs", "images")]
        side = images.shape[1] // PATCH * PATCH  # no patch covers more
        with tempfile.TemporaryDirectory() as folder:
            model = keras_vit.load(foundation_folder(folder, name), image_size=side, **FOUNDATION[name][1])
        yield np.abs(model(images[:, :side, :side]) - io[outputs]).max() / io[outputs].std()


def main():
    print("| model | image sizes | largest difference / standard deviation |\n|---|---|---|")
    for name in FOUNDATION:
        found = list(differences(name))
        print(f"| {name} | {len(found)} | {max(found):.1e} |")


if __name__ == "__main__":
    main()
