"""Notes on standard error about assumed pixel ranges."""

import warnings
from functools import partial

import pytest

from keras_vit.models.load_checkpoint import ImageSizeWarning
from keras_vit.pixel_range import PixelRangeWarning
from keras_vit_cli.main import _with_flags
from keras_vit_cli.process.notes import printing_assumptions


@pytest.mark.parametrize("command,prefix", [("train", "--data."), ("sweep", "--recipe.data."), ("vtab", "--")])
def test_fields_are_options_of_the_command(command, prefix, capsys):
    message = "x.npz does not state how its pixels are scaled. Set data.mean=(0.5, 0.5, 0.5) data.std=(0.2, 0.3, 0.4)"
    with printing_assumptions(partial(_with_flags, arguments=[command])):
        for _ in range(2):
            warnings.warn(message, PixelRangeWarning, stacklevel=1)
    options = f"{prefix}mean 0.5 0.5 0.5 {prefix}std 0.2 0.3 0.4"
    assert capsys.readouterr().err == f"Note: x.npz does not state how its pixels are scaled. Set {options}\n"


def test_an_assumed_image_size_is_set_by_converting(capsys):
    message = (
        "x.npz does not state the size of its images. Assumed: 224 pixels. If you know another, pass image_size=..."
    )
    with printing_assumptions(str):
        warnings.warn(message, ImageSizeWarning, stacklevel=1)
    assert capsys.readouterr().err.endswith("If you know another, set it with keras-vit convert --image-size\n")
