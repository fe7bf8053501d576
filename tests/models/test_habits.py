"""Arguments and names of other libraries end in an error that says the words to use."""

import pytest

import keras_vit
from keras_vit.models import habits


@pytest.mark.parametrize(
    "arguments,words",
    [
        ({"include_top": False}, "include_top: use num_classes=0"),
        ({"classes": 3}, "classes: use num_classes"),
        ({"input_shape": (16, 16, 3)}, r"input_shape: use image_size=\(height, width\)"),
        ({"classifier_activation": None}, r"use model.classify\(images\), or keras.ops.softmax"),
        ({"drop_path_rate": 0.1, "embed_dim": 12}, "drop_path_rate: use stochastic_depth; embed_dim: use width"),
        ({"patch_drop_rate": 0.5}, "patch_drop_rate: use patch_dropout"),
        ({"gradient_checkpointing": True}, 'gradient_checkpointing: use remat="block"'),
        ({"pooling": "avg"}, "Received: 'avg', which is 'gap' here"),
        ({"pooling": "cls"}, "Received: 'cls', which is 'token' here"),
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


@pytest.mark.parametrize(
    "kind",
    [keras_vit.VisionTransformer, keras_vit.BiT, keras_vit.AxialResNet, keras_vit.ViT_B16, keras_vit.BiT_R50x1],
)
def test_presets(kind):
    message = r"Expected keras_vit.load\(weights\). Received: the preset 'vit_base'. `weights` is a preset's folder, "
    for method in (kind.from_preset, kind.from_pretrained):
        with pytest.raises(ValueError, match=message):
            method("vit_base", num_classes=3)


def test_the_words_here_are_arguments():
    names = {*keras_vit.ViTConfig.__dataclass_fields__}
    plain = {word for word in habits.WORDS.values() if word.isidentifier()}
    assert plain <= names and not names & set(habits.WORDS)


@pytest.mark.parametrize(
    "name,suggestion",
    [
        ("vit_base_patch16_224", "pass 'hf:timm/vit_base_patch16_224' with the tag"),
        ("google/vit-base-patch16-224", "pass 'hf:google/vit-base-patch16-224'"),
        ("imagenet", "pass 'vit/imagenet21k.imagenet2012/ViT-B_16'"),
        ("./x/y/z.npz", "The folder x/y does not exist."),
        ("z.npz", "one of keras_vit.weights.published_names"),
    ],
)
def test_names(name, suggestion):
    with pytest.raises(FileNotFoundError, match=f"There is no weights file .*{suggestion}"):
        keras_vit.load(name)


def test_shapes(toy):
    assert toy().input_shape == (None, 16, 16, 3) and toy().output_shape == (None, 5)
    assert toy(num_classes=0, pooling="none").output_shape == (None, 17, 12)
    bit = keras_vit.BiT(stages=[1], width_factor=0.5, num_classes=2)
    assert bit.input_shape == (None, None, None, 3) and bit.output_shape == (None, 2)


@pytest.mark.parametrize("name", ["B16", "b/16", "ViT-B_16", "vit_base_patch16_224", "vit_b_16", "deit-base-16"])
def test_spellings_of_variants(name):
    with pytest.raises(ValueError, match=f"Received: '{name}'. Perhaps B/16$"):
        keras_vit.ViT(name)
    with pytest.raises(ValueError, match="Received: 'B/0'$"):
        keras_vit.ViT("B/0")
