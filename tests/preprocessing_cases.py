"""Random images and preprocessings, on which each client of exported files must equal `Preprocessing`."""

from itertools import product

import numpy as np
from PIL import Image
from scenes import scene

from keras_vit.images.preprocessing import INTERPOLATIONS, RESIZES, Preprocessing

LEVELS = 0.5  # gray levels that a client may differ: TensorFlow's bicubic weights are from a table, which costs 0.2
ORIENTATION = 0x0112


def random_cases(seed: int):
    """Yields (image, its EXIF data, preprocessing) for all resizes, interpolations, with and without antialias.

    Images are smooth or have hard edges, are turned, have sides of 4 to 256 pixels; models take RGB or gray.
    """
    random = np.random.default_rng(seed)
    for number, (resize, interpolation, antialias) in enumerate(product(RESIZES, INTERPOLATIONS, (False, True))):
        height, width = (int(side) for side in 2 ** random.uniform(2, 8, 2))
        image = scene(number, (max(width, 8), max(height, 8))).crop((0, 0, width, height))
        if random.integers(2):
            y, x = np.mgrid[:height, :width]
            image = Image.fromarray((((y // 5 + x // 7) % 2 * 255)[..., None] * [1, 1, 0]).astype("uint8"))
        exif = Image.Exif()
        exif[ORIENTATION] = int(random.integers(1, 9))
        channels = random.choice([1, 3, 3]).item()
        yield (
            image,
            exif,
            Preprocessing(
                tuple(random.integers(8, 40, 2).tolist()),
                resize=resize,
                crop_fraction=random.choice([1.0, 0.875, 0.8, random.uniform(0.3, 1)]).item(),
                interpolation=interpolation,
                antialias=antialias,
                mean=(0.5,) * channels,
                std=(0.5,) * channels,
            ),
        )
