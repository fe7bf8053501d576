"""Arguments and names of other libraries end in an error that names the words to use."""

import pytest

import keras_vit
from keras_vit.models import habits


@pytest.mark.parametrize(
    "arguments,words",
    [
        ({"include_top": False}, "include_top: use num_classes=0"),
        ({"drop_path_rate": 0.1, "embed_dim": 12}, "drop_path_rate: use stochastic_depth; embed_dim: use width"),
        ({"pooling": "avg"}, "'avg', which is 'gap' here"),
        ({"pooling": []}, r"Received: \[\]$"),
    ],
)
def test_arguments(toy, arguments, words):
    with pytest.raises(ValueError, match=words):
        toy(**arguments)


def test_arguments_of_resnets_and_of_load(toy, tmp_path):
    toy().save(tmp_path / "m.keras")
    for build in (keras_vit.BiT_R50x1, keras_vit.AxialResNet50, lambda **x: keras_vit.load(tmp_path / "m.keras", **x)):
        with pytest.raises(ValueError, match="num_labels: use num_classes"):
            build(num_labels=3)
    names = {*keras_vit.ViTConfig.__dataclass_fields__}
    assert {word for word in habits.WORDS.values() if word.isidentifier()} <= names and not names & set(habits.WORDS)
    for kind in (keras_vit.VisionTransformer, keras_vit.BiT, keras_vit.AxialResNet, keras_vit.ViT_B16):
        for method in (kind.from_preset, kind.from_pretrained):
            with pytest.raises(ValueError, match="'vit_base'"):
                method("vit_base", num_classes=3)


@pytest.mark.parametrize(
    "name,suggestion",
    [
        ("vit_base_patch16_224", "hf:timm/vit_base_patch16_224"),
        ("google/vit-base-patch16-224", "hf:google/vit-base-patch16-224"),
        ("imagenet", "vit/imagenet21k.imagenet2012/ViT-B_16"),
        ("./x/y/z.npz", "x/y"),
        ("z.npz", "published_names"),
    ],
)
def test_names_of_weights(name, suggestion):
    with pytest.raises(FileNotFoundError, match=suggestion):
        keras_vit.load(name)


@pytest.mark.parametrize("name", ["B16", "b/16", "ViT-B_16", "vit_base_patch16_224", "vit_b_16", "deit-base-16"])
def test_spellings_of_variants(name):
    with pytest.raises(ValueError, match=f"Received: '{name}'. Perhaps B/16$"):
        keras_vit.ViT(name)
