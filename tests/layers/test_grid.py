import pytest

from keras_vit.layers import AxialBlock, PositionEmbedding, PositionEmbedding2D, SinCosPositions

LAYERS = {
    "axial": lambda grid: AxialBlock(grid, 1, num_heads=2, mlp_dim=8),
    "learned_1d": lambda grid: PositionEmbedding(grid, 1),
    "learned_2d": lambda grid: PositionEmbedding2D(grid, 1),
    "sincos_2d": lambda grid: SinCosPositions(grid, 1),
}


@pytest.mark.parametrize("name", LAYERS)
@pytest.mark.parametrize("grid", [14, (2, 0), (2, 3, 4), (2.0, 3)], ids=str)
def test_wrong_grids(name, grid):
    with pytest.raises(ValueError, match="`grid` must be two positive integers"):
        LAYERS[name](grid)


@pytest.mark.parametrize("name", LAYERS)
def test_wrong_number_of_tokens(name):
    message = r"grid of \(2, 3\) patches and 1 prefix tokens make 7 tokens. .*\(None, 6, 8\), which has 6 tokens"
    with pytest.raises(ValueError, match=message):
        LAYERS[name]((2, 3)).build((None, 6, 8))
