from pathlib import Path

import pytest
from goldens import GOLDENS

from keras_vit.weights.files import Tensors
from keras_vit.weights.opening import ARRAY_SOURCES, SOURCES


def test_names_of_sources_are_unique():
    assert len({source.name for source in SOURCES}) == len({source.title for source in SOURCES}) == len(SOURCES)


@pytest.mark.parametrize("golden", GOLDENS)
def test_files_are_recognized(golden):
    shapes = {name: tuple(shape) for name, shape in GOLDENS[golden]["shapes"].items()}
    tensors = Tensors(Path("x.npz"), shapes, lambda name: None)
    source = next(source for source in ARRAY_SOURCES if source.recognizes(tensors))
    project = golden.replace("vit_jax", "jax").replace("big_vision", "bit" if "bit" in golden else "jax")
    assert source.__name__.rpartition(".")[2].startswith(project.partition("_")[0].replace("hf", "hugging"))
