import pytest

from keras_vit.recipes.recipe import Architecture, Data
from keras_vit.recipes.training.variant_checks import check_image_size


def test_check_image_size():
    check_image_size(Architecture("B/16"), Data(image_size=224))
    check_image_size(Architecture("BiT-R50x1"), Data(image_size=225))
    with pytest.raises(ValueError, match="cannot be cut into patches"):
        check_image_size(Architecture("H/14"), Data(image_size=225))
