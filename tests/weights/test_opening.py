from pathlib import Path

import pytest
from goldens import GOLDENS

from keras_vit.weights.files import Tensors
from keras_vit.weights.opening import ARRAY_SOURCES, SOURCES

MODULES = {
    **dict.fromkeys(("hf_dinov2", "hf_dinov2_reg", "hf_dinov2_g"), "hugging_face_dinov2"),
    **dict.fromkeys(("hf_clip", "hf_siglip"), "hugging_face_towers"),
    **{"dino": "timm", "dinov2": "dinov2", "dinov2_reg": "dinov2", "openai_clip": "open_clip"},
}


def test_names_of_sources_are_unique():
    assert len({source.name for source in SOURCES}) == len({source.title for source in SOURCES}) == len(SOURCES)


@pytest.mark.parametrize("golden", GOLDENS)
def test_files_are_recognized(golden):
    shapes = {name: tuple(shape) for name, shape in GOLDENS[golden]["shapes"].items()}
    tensors = Tensors(Path("x.npz"), shapes, lambda name: None)
    source = next(source for source in ARRAY_SOURCES if source.recognizes(tensors))
    module = source.__name__.rpartition(".")[2]
    if golden in MODULES:
        assert module == MODULES[golden]
        return
    project = golden.replace("vit_jax", "jax").replace("big_vision", "bit" if "bit" in golden else "jax")
    assert module.startswith(project.partition("_")[0].replace("hf", "hugging"))
