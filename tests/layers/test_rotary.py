"""Rotary positions beside complex numbers, and what the products of queries with keys depend on."""

import numpy as np
import pytest

import keras_vit
from keras_vit.layers.rotary import RotaryPositions

HEADS = np.random.default_rng(0).normal(size=(2, 3, 2 + 6, 8)).astype("float32")  # 2 prefix tokens, a grid of 2 x 3


@pytest.mark.parametrize(
    ("coordinates", "rows", "columns"),
    [
        ("centers", [-np.pi, np.pi], [-4 * np.pi / 3, 0.0, 4 * np.pi / 3]),
        ("indices", [0.0, 1.0], [0.0, 1.0, 2.0]),
        ((8, 6), [0.0, 4.0], [0.0, 2.0, 4.0]),
    ],
)
def test_pairs_of_channels_are_complex_numbers_that_turn(coordinates, rows, columns):
    layer = RotaryPositions((2, 3), prefix_tokens=2, theta=50.0, coordinates=coordinates)
    turned = np.asarray(layer(HEADS))
    numbers, expected = HEADS[..., :4] + 1j * HEADS[..., 4:], turned[..., :4] + 1j * turned[..., 4:]
    np.testing.assert_array_equal(expected[:, :, :2], numbers[:, :, :2])
    frequencies = 1.0, 50.0**-0.5
    for i, row in enumerate(rows):
        for j, column in enumerate(columns):
            angles = np.array([row * f for f in frequencies] + [column * f for f in frequencies])
            token = 2 + 3 * i + j
            np.testing.assert_allclose(expected[:, :, token], numbers[:, :, token] * np.exp(1j * angles), atol=1e-5)


@pytest.mark.parametrize("read", [1, 5, np.array([[7, 0, 3], [1, 2, 6]])])
def test_tokens_that_are_read(read):
    layer = RotaryPositions((2, 3), prefix_tokens=2)
    layer.build(HEADS.shape)
    whole = np.asarray(layer(HEADS))
    picked = (
        (lambda x: x[:, :, :read])
        if isinstance(read, int)
        else lambda x: np.take_along_axis(x, read[:, None, :, None], 2)
    )
    np.testing.assert_array_equal(layer(picked(HEADS), read=read), picked(whole))


def test_errors_and_config():
    with pytest.raises(ValueError, match="multiple of 4.*width 6"):
        RotaryPositions((2, 3)).build((None, 3, 6, 6))
    with pytest.raises(ValueError, match="make 6 tokens"):
        RotaryPositions((2, 3)).build((None, 3, 7, 8))
    layer = RotaryPositions((2, 3), 1, 20.0, (4, 4), dtype="mixed_bfloat16")
    assert RotaryPositions.from_config(layer.get_config()).get_config() == layer.get_config()


def test_model(toy, images, tmp_path):
    """Any size without resampling; what is refused."""
    model = toy(position_embedding="rotary", rotary_theta=30, rotary_coordinates=[3, 3])
    larger = model.resized((32, 16))
    assert larger.encoder.blocks[0].attention.rotary.grid == larger.grid and model.positions is None
    assert [w.shape for w in larger.weights] == [w.shape for w in model.weights]
    model.save(tmp_path / "m.keras")
    loaded = keras_vit.load(tmp_path / "m.keras")
    assert loaded.config == model.config and loaded.config.rotary_coordinates == (3, 3)
    for wrong, message in (
        ({"axial": True}, "axial=True"),
        ({"patch_dropout": 0.5}, "requires all patches"),
        ({"position_placement": "shared"}, "later blocks"),
        ({"rotary_theta": 1}, "above 1"),
        ({"rotary_coordinates": "pixels"}, "'centers' or 'indices'"),
        ({"rotary_coordinates": (3,)}, "rows, columns"),
    ):
        with pytest.raises(ValueError, match=message):
            toy(position_embedding="rotary", **wrong)
