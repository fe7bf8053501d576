from types import SimpleNamespace

from keras_vit.recipes.preflight.tiling import tiling_notes


def model(grid=(16, 16), **arguments):
    """What the notes read of a model of 16 x 16 patches; 257 tokens with the class token."""
    arguments = {"width": 256, "mlp_dim": 512, "num_heads": 2, **arguments}
    return SimpleNamespace(arguments=arguments, grid=grid, patch_size=(16, 16), prefix_tokens=0)


def test_sizes_that_fill_their_tiles_need_no_note():
    assert tiling_notes(model(), 16) == []
    assert tiling_notes(SimpleNamespace(), 16) == []  # a model of somebody else


def test_each_size_is_said_with_a_better_one():
    said = tiling_notes(model(width=192, mlp_dim=300, num_heads=3), 12)
    assert said == [
        "12 images a device are no multiple of 8; 16 would be.",
        "width 192 wastes 25% of its tiles of 128; 256 would not.",
        "mlp_dim 300 wastes 22% of its tiles of 128; 384 would not.",
        "Heads of width 64 leave 50% of the matrix unit idle in attention.",
    ]
    assert tiling_notes(SimpleNamespace(), 3) == ["3 images a device are no multiple of 8; 8 would be."]


def test_near_sizes_of_images_have_fewer_tokens_in_vain():
    (said,) = tiling_notes(model(grid=(14, 14)), 8)
    assert said == "196 tokens waste 23% of the attention weights' tiles. Near sizes: 256 px: 0%, 176 px: 5%."
    assert tiling_notes(model(grid=(14, 15)), 8) == []  # images that are not square
