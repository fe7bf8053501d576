"""Names and counts of skipped images."""

import pytest

from keras_vit.recipes.data import skipped_images
from keras_vit.recipes.data.skipped_images import count_skipped, mark_named, skipped_summary


@pytest.fixture(autouse=True)
def fresh(monkeypatch):
    monkeypatch.setattr(skipped_images, "_skipped", {})
    monkeypatch.setattr(skipped_images, "_named", set())


def test_each_image_is_named_once_and_again_at_the_end(capsys):
    assert skipped_summary() == ""
    count_skipped("folder:a", [b"x.jpg"])
    assert skipped_summary() == "Skipped undecodable images: 1 (x.jpg)"
    count_skipped("folder:a", [b"y.jpg", b"x.jpg"])
    count_skipped("folder:a", ["y.jpg"])
    assert capsys.readouterr().err == "Skipping undecodable images: x.jpg\nSkipping undecodable images: y.jpg\n"
    assert skipped_summary() == "Skipped undecodable images: 2 (y.jpg, x.jpg)"
    assert skipped_summary() == ""  # of another run
    count_skipped("folder:b", ["x.jpg"])
    assert "x.jpg" in capsys.readouterr().err


def test_images_named_in_another_message_are_counted_only(capsys):
    mark_named("folder:a", ["x.jpg"])
    count_skipped("folder:a", ["x.jpg"])
    assert capsys.readouterr().err == "" and skipped_summary() == "Skipped undecodable images: 1 (x.jpg)"


def test_a_closed_stream_does_not_matter(monkeypatch):
    monkeypatch.setattr("builtins.print", lambda *_, **__: (_ for _ in ()).throw(BrokenPipeError))
    count_skipped("folder:a", ["x.jpg"])
    assert "1 (x.jpg)" in skipped_summary()
