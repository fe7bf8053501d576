import numpy as np
import pytest

from keras_vit_cli.inspect.attention_data import AttentionData
from keras_vit_cli.inspect.image_files import ImageBatch

pytestmark = pytest.mark.slow


def test_size_limit(trained_toy):
    model = trained_toy(depth=5)  # 3 * 17 * (17 + 4) bytes per layer, 7,140 characters of base64 per image
    pixels = np.zeros((4, 16, 16, 3), "uint8")
    images = ImageBatch(["a", "b", "c", "d"], pixels / np.float32(127.5) - 1, pixels)
    all_layers = [1, 2, 3, 4, 5]
    for max_megabytes, num_images, layers in (
        (0.0286, 4, all_layers),
        (0.0285, 3, all_layers),
        (0.0044, 1, [1, 3, 5]),
        (1e-6, 1, [5]),
    ):
        data = AttentionData(model, images, max_megabytes)
        stored = data.as_dict()
        assert len(stored["images"]) == num_images == 4 - data.num_omitted and stored["layers"] == layers
        assert len(stored["images"][0]["levels"]) == -(-17 * 17 * 3 * len(layers) // 3) * 4
        size = sum(len(image[key]) for image in stored["images"] for key in ("levels", "steps"))
        assert size <= 1e6 * max_megabytes or layers == [5]
