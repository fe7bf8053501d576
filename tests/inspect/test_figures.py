"""Figures show the arrays that they are given; how they look is for people to judge."""

import numpy as np

from keras_vit.inspect import figures


def test_image_grid_shows_every_image_once():
    images = list(np.random.default_rng(0).integers(0, 255, (3, 4, 4, 3), "uint8"))
    figure = figures.image_grid([images, images[:2]], ["above", "below"], ["a", "b", "c"])
    shown = [axis.images[0].get_array() for axis in figure.axes if axis.images]
    assert len(shown) == 5
    np.testing.assert_array_equal(shown[1], images[1])
    assert [axis.get_ylabel() for axis in figure.axes if axis.get_ylabel()] == ["above", "below"]


def test_short_rows_have_no_empty_frames():
    image = np.zeros((2, 2, 3), "uint8")
    figure = figures.image_grid([[image] * 3, [image]], ["a", "b"])
    assert sum(axis.axison for axis in figure.axes) == 4


def test_overlay_is_brighter_with_attention():
    image = np.full((2, 2, 3), 128, "uint8")
    mixed = figures.overlay(image, np.array([[0.0, 0.5], [0.75, 1.0]]))
    assert mixed.dtype == np.uint8
    red = mixed[..., 0].ravel().astype(int)
    assert (np.diff(red) > 0).all()


def test_curves_and_bars_show_the_values():
    figure = figures.curves({"loss": ([1, 2], [0.5, 0.25], ("-", "red"))}, "accuracy, %", percent=True)
    np.testing.assert_array_equal(figure.axes[0].lines[0].get_ydata(), [50, 25])
    figure = figures.bars({"few": (50.0, 90.0), "all": (95.0, 98.0)}, ("before", "after"), "%")
    assert [patch.get_height() for patch in figure.axes[0].patches] == [50, 95, 90, 98]


def test_similarity_maps_and_confusion():
    similarity = np.random.default_rng(0).uniform(-1, 1, (2, 3, 2, 3))
    figure = figures.similarity_maps(similarity)
    drawn = figure.axes[0].images[0].get_array()  # 6 x 4 pixels a number, one between maps
    assert drawn.shape == (2 * 12 + 1, 3 * 12 + 2) and drawn.mask[12].all() and drawn.mask[:, 12].all()
    np.testing.assert_array_equal(drawn[13::6, 13:25:4], similarity[1, 1])
    np.testing.assert_array_equal(drawn[:12:6, 26::4], similarity[0, 2])
    assert figure.axes[0].images[0].get_extent() == [0.5, 3.5, 2.5, 0.5]
    figure = figures.confusion_matrix(np.array([[3, 1], [0, 7]]), ["a", "b"])
    assert sorted(text.get_text() for text in figure.axes[0].texts) == ["1", "3", "7"]


def test_distances_and_layers():
    distances = np.random.default_rng(0).uniform(0, 99, (4, 3))
    (axis,) = figures.head_distances(distances).axes
    np.testing.assert_array_equal([line.get_ydata() for line in axis.lines], distances.T)
    assert {tuple(line.get_xdata()) for line in axis.lines} == {(1, 2, 3, 4)} and axis.get_ylim()[0] == 0
    assert axis.get_ylim()[1] > distances.max()
    matrix = np.random.default_rng(0).uniform(0, 1, (4, 4))
    drawn = figures.layer_matrix(matrix).axes[0].images[0]
    np.testing.assert_array_equal(drawn.get_array(), matrix)
    assert drawn.get_extent() == [0.5, 4.5, 0.5, 4.5]
