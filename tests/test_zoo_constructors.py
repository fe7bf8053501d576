"""Constructors of the zoo: models that they build, and checkpoints of another kind."""

import keras
import numpy as np
import pytest

import keras_vit


@pytest.mark.slow
def test_constructor_builds_a_model():
    model = keras_vit.ViT_Ti16(image_size=(32, 48), num_classes=3)
    assert model.name == "ViT_Ti16"
    assert model(np.zeros((2, 32, 48, 3), "float32")).shape == (2, 3)
    assert keras_vit.ViT_Ti16.__name__ == "ViT_Ti16" and "keras_vit.ViT('Ti/16'" in keras_vit.ViT_Ti16.__doc__


@pytest.mark.slow
def test_constructors_take_arguments_and_set_names():
    hybrid = keras_vit.R_ViT_Ti16(image_size=(32, 64), num_classes=3)
    assert hybrid.name == "R_ViT_Ti16" and hybrid.grid == (1, 2) and hybrid.patch_embedding.patch_size == (8, 8)
    assert hybrid(np.zeros((1, 32, 64, 3), "float32")).shape == (1, 3)
    distilled = keras_vit.DeiT_Ti16(image_size=32, num_classes=3)
    assert distilled.name == "DeiT_Ti16" and distilled.config.gelu == "erf"
    assert [logits.shape for logits in distilled.both_heads(np.zeros((1, 32, 32, 3), "float32"))] == [(1, 3)] * 2
    assert keras_vit.DeiT_Ti16.__name__ == "DeiT_Ti16" and "distillation=True" in keras_vit.DeiT_Ti16.__doc__
    for build, changes in (
        (keras_vit.AxialViT_B32, {"image_size": 64, "depth": 1}),
        (keras_vit.BiT_R50x1, {"num_classes": 2}),
        (keras_vit.AxialResNet50, {"num_classes": 2}),
    ):
        with keras.StatelessScope(initialize_variables=False):
            assert build(**changes).name == build.__name__
            assert build(**changes, name="mine").name == "mine"
        keras.utils.clear_session(free_memory=False)


@pytest.mark.slow
def test_checkpoints_of_another_kind(toy, tmp_path):
    small = {"stages": (1,), "width_factor": 0.5}
    axial = keras_vit.AxialResNet(image_size=32, num_classes=2, num_heads=1, **small)
    bit = keras_vit.BiT(num_classes=2, **small)
    for name, model in {"vit.npz": toy(), "vit.keras": toy(), "bit.keras": bit, "axial.keras": axial}.items():
        keras_vit.weights.save(model, tmp_path / name)
    cases = [
        (
            keras_vit.BiT_R50x1,
            "vit.npz",
            {},
            "vit.npz is a checkpoint of VisionTransformer, which has no argument stages, w",
        ),
        (keras_vit.BiT_R50x1, "vit.keras", {}, "is a checkpoint of VisionTransformer.* Expected a checkpoint of BiT"),
        (
            keras_vit.ViT_B16,
            "bit.keras",
            {},
            "bit.keras is a checkpoint of BiT, which has no .* Expected a checkpoint of VisionTransformer",
        ),
        (
            keras_vit.BiT_R50x1,
            "axial.keras",
            small,
            "is a checkpoint of AxialResNet. Expected a checkpoint of BiT",
        ),
        (
            keras_vit.AxialResNet50,
            "bit.keras",
            small,
            "is a checkpoint of BiT. Expected a checkpoint of AxialResNet",
        ),
        (keras_vit.load, "vit.npz", {"droput": 0.1}, "has no argument droput. Known: image_size, patch_size, .*dtype"),
    ]
    for build, file, arguments, message in cases:
        with pytest.raises(ValueError, match=message):
            build(weights=tmp_path / file, **arguments)
    found = keras_vit.AxialResNet50(weights=tmp_path / "axial.keras", num_heads=1, **small)
    assert found.name == "AxialResNet50" and found.image_size == (32, 32)
    np.testing.assert_array_equal(found.conv_root.kernel, axial.conv_root.kernel)
