import numpy as np
import pytest
from goldens import golden_io

from keras_vit.inspect import attention_distance, mean_attention_distance


def test_equals_loops_over_attention_of_hugging_face():
    attention = golden_io("hf_vit")["attentions"]  # (2, 2, 3, 17, 17) of 64 pixels in patches of 16
    for layer, head in np.ndindex(2, 3):
        total = 0.0
        for image, query, key in np.ndindex(2, 16, 16):
            apart = 16 * np.hypot(query // 4 - key // 4, query % 4 - key % 4)
            total += attention[image, layer, head, 1 + query, 1 + key] * apart
        assert abs(mean_attention_distance(attention, (4, 4), 16)[layer, head] - total / 32) < 1e-5


@pytest.mark.parametrize("changes", [{}, {"pooling": "gap"}, {"register_tokens": 2, "image_size": (8, 24)}])
def test_batches_do_not_change_the_result(trained_toy, changes):
    model = trained_toy(**changes)
    images = np.random.default_rng(0).uniform(-1, 1, (5, *model.image_size, 3)).astype("float32")
    expected = mean_attention_distance(np.asarray(model.attention_maps(images)), model.grid, 4, model.prefix_tokens)
    np.testing.assert_allclose(attention_distance(model, images, batch_size=2), expected, rtol=1e-5)
    assert expected.shape == (2, 3) and expected.min() > 0


def test_wrong_shapes_and_no_images(toy):
    with pytest.raises(ValueError, match=r"Received: \(1, 1, 1, 4, 4\)"):
        mean_attention_distance(np.zeros((1, 1, 1, 4, 4)), (2, 2), 16)
    with pytest.raises(ValueError, match="Received: 0 images"):
        attention_distance(toy(), np.zeros((0, 16, 16, 3)))
