"""Figures show the arrays that they are given; how they look is for people to judge."""

import numpy as np

from keras_vit.inspect import figures

RANDOM = np.random.default_rng(0)


def test_image_grid_shows_every_image_once_without_empty_frames():
    images = list(RANDOM.integers(0, 255, (3, 4, 4, 3), "uint8"))
    figure = figures.image_grid([images, images[:2]], ["above", "below"], ["a", "b", "c"])
    shown = [axis.images[0].get_array() for axis in figure.axes if axis.images]
    assert len(shown) == sum(axis.axison for axis in figure.axes) == 5
    np.testing.assert_array_equal(shown[1], images[1])
    assert [axis.get_ylabel() for axis in figure.axes if axis.get_ylabel()] == ["above", "below"]


def test_overlay_is_brighter_with_attention():
    mixed = figures.overlay(np.full((2, 2, 3), 128, "uint8"), np.array([[0.0, 0.5], [0.75, 1.0]]))
    assert mixed.dtype == np.uint8 and (np.diff(mixed[..., 0].ravel().astype(int)) > 0).all()


def test_similarity_maps():
    similarity = RANDOM.uniform(-1, 1, (2, 3, 2, 3))
    image = figures.similarity_maps(similarity).axes[0].images[0]
    drawn = image.get_array()  # 6 x 4 pixels a number, one between maps
    assert drawn.shape == (2 * 12 + 1, 3 * 12 + 2) and drawn.mask[12].all() and drawn.mask[:, 12].all()
    np.testing.assert_array_equal(drawn[13::6, 13:25:4], similarity[1, 1])
    np.testing.assert_array_equal(drawn[:12:6, 26::4], similarity[0, 2])
    assert image.get_extent() == [0.5, 3.5, 2.5, 0.5]


def test_distances_layers_and_curves():
    distances, matrix = RANDOM.uniform(0, 99, (4, 3)), RANDOM.uniform(0, 1, (4, 4))
    (axis,) = figures.head_distances(distances).axes
    np.testing.assert_array_equal([line.get_ydata() for line in axis.lines], distances.T)
    assert {tuple(line.get_xdata()) for line in axis.lines} == {(1, 2, 3, 4)}
    assert axis.get_ylim()[0] == 0 and axis.get_ylim()[1] > distances.max()
    drawn = figures.layer_matrix(matrix).axes[0].images[0]
    np.testing.assert_array_equal(drawn.get_array(), matrix)
    assert drawn.get_extent() == [0.5, 4.5, 0.5, 4.5]
    figure = figures.curves({"loss": ([1, 2], [0.5, 0.25], ("-", "red"))}, "accuracy, %", percent=True)
    np.testing.assert_array_equal(figure.axes[0].lines[0].get_ydata(), [50, 25])
