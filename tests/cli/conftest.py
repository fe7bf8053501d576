import keras
import pytest

import keras_vit
from keras_vit_cli.main import main


@pytest.fixture(scope="session")
def tflite_files(tmp_path_factory):
    """Files of a tiny model, in float32 and dynamic-int8."""
    from keras_vit.export import write_tflite

    keras.utils.set_random_seed(0)
    model = keras_vit.VisionTransformer(
        image_size=16, patch_size=8, depth=1, width=16, mlp_dim=32, num_heads=2, num_classes=4
    )
    written = write_tflite(model, tmp_path_factory.mktemp("tflite"), ["float32", "dynamic-int8"])
    return [written[name] for name in ("float32", "dynamic-int8")]


@pytest.fixture
def run_cli(capsys):
    """Runs `keras-vit` with arguments; returns the exit status, output and errors."""

    def run(*arguments):
        capsys.readouterr()
        status = main([str(argument) for argument in arguments])
        return status, *capsys.readouterr()

    return run
