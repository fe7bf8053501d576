"""Batches of ten training steps, which the authors' code (tools/ten_steps_goldens.py) and ours train on alike.

Images are those after augmentation, normal numbers; no rate of dropout or stochastic depth is above 0.
"""

import json

import numpy as np
from goldens import DATA, random_weights

FOLDER = DATA / "ten_steps"
STEPS, BATCH, SIDE, PATCH, WIDTH, HEADS, DEPTH, CLASSES = 10, 8, 32, 8, 48, 3, 2, 5
TOKENS = (SIDE // PATCH) ** 2
WARMUP = 3  # steps
STORED = 1000  # values of each array
UNKNOWN = np.float32(1e30)  # loaders refuse NaN
_random = np.random.default_rng(0)
IMAGES = _random.standard_normal((STEPS, BATCH, SIDE, SIDE, 3)).astype("float32")
LABELS = _random.integers(CLASSES, size=(STEPS, BATCH))
NOISE = _random.random((STEPS, BATCH, TOKENS)).astype("float32")  # the patches with the largest are masked
TEACHER = _random.standard_normal((SIDE * SIDE * 3, CLASSES)).astype("float32")  # the kernel of a linear teacher
ONE_HOT = np.eye(CLASSES, dtype="float32")[LABELS]
RATIO = 0.7  # of mixup
MIXED = (RATIO * ONE_HOT + (1 - RATIO) * ONE_HOT[:, ::-1]).astype("float32")


def write_final_weights(family: str, arrays):
    """Stores the weights of the authors' code after ten steps: of large arrays `STORED` values, drawn at random."""
    shapes = json.dumps({name: list(array.shape) for name, array in arrays.items()})
    values = {name: array.ravel()[_stored(array.size)] for name, array in arrays.items()}
    np.savez_compressed(FOLDER / f"{family}.npz", shapes=np.array(shapes), **values)


def start_and_final_weights(family: str) -> tuple[dict[str, np.ndarray], dict[str, np.ndarray]]:
    """Weights before and after ten steps under the authors' names; the latter `UNKNOWN` where no value is stored."""
    golden = np.load(FOLDER / f"{family}.npz")
    start = random_weights(json.loads(str(golden["shapes"])))
    final = {name: np.full(array.shape, UNKNOWN) for name, array in start.items()}
    for name, array in final.items():
        array.flat[_stored(array.size)] = golden[name]
    return start, final


def _stored(size):
    return np.sort(np.random.default_rng(0).permutation(size)[:STORED])
