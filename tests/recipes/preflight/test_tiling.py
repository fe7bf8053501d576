from types import SimpleNamespace

from keras_vit.recipes.preflight.tiling import tiling_notes


def model(grid=(16, 16), **changes):
    """Stands for a model: the attributes that the notes read. 256 tokens, no class token."""
    config = SimpleNamespace(**{"width": 256, "mlp_dim": 512, "num_heads": 2, **changes})
    return SimpleNamespace(config=config, grid=grid, patch_size=(16, 16), prefix_tokens=0)


def test_sizes_without_padding_have_no_notes():
    assert tiling_notes(model(), 16) == []
    assert tiling_notes(SimpleNamespace(), 16) == []  # a model of another class


def test_notes_suggest_better_sizes():
    notes = tiling_notes(model(width=192, mlp_dim=300, num_heads=3), 12)
    assert notes == [
        "12 images per device is not a multiple of 8; use 16.",
        "width 192 wastes 25% on padding; use 256.",
        "mlp_dim 300 wastes 22% on padding; use 384.",
        "Heads of width 64 leave 50% of the matrix unit idle in attention.",
    ]
    assert tiling_notes(SimpleNamespace(), 3) == ["3 images per device is not a multiple of 8; use 8."]


def test_notes_suggest_image_sizes_with_less_padding():
    (note,) = tiling_notes(model(grid=(14, 14)), 8)
    assert (
        note == "196 tokens waste 23% of the attention weights on padding. Nearby image sizes: 256 px: 0%, 176 px: 5%."
    )
    assert tiling_notes(model(grid=(14, 15)), 8) == []  # not square
