import pytest
from goldens import golden_weights

from keras_vit.layers.resnet.backbone import ResNetBackbone
from keras_vit.models.bit import BiT
from keras_vit.weights.resnet_names import resnet_source_name, without_counter
from keras_vit.weights.transfer import named_weights

BIT_MODELS = {
    "backbone/root/conv_root/kernel": "resnet/root_block/standardized_conv2d/kernel",
    "backbone/block1/unit1/gn1/gamma": "resnet/block1/unit01/a/group_norm/gamma",
    "backbone/block1/unit1/conv1/kernel": "resnet/block1/unit01/a/standardized_conv2d/kernel",
    "backbone/block1/unit1/conv_proj/kernel": "resnet/block1/unit01/a/proj/standardized_conv2d/kernel",
    "backbone/block2/unit4/conv2/kernel": "resnet/block2/unit04/b/standardized_conv2d/kernel",
    "backbone/block3/unit23/gn2/beta": "resnet/block3/unit23/b/group_norm/beta",
    "backbone/block4/unit3/gn3/beta": "resnet/block4/unit03/c/group_norm/beta",
    "backbone/block4/unit3/conv3/kernel": "resnet/block4/unit03/c/standardized_conv2d/kernel",
    "norm/gamma": "resnet/group_norm/gamma",
    "head/kernel": "resnet/head/conv2d/kernel",
    "head/bias": "resnet/head/conv2d/bias",
}


@pytest.mark.parametrize("form", ["v1", "paper"])
def test_the_files_of_big_vision_have_just_these_names(form):
    arrays = golden_weights(f"big_vision_bit_{form}")
    weights = named_weights(BiT(stages=(1, 1), num_classes=10, form=form))
    assert sorted(resnet_source_name(name, form) for name in weights) == sorted(arrays)
    for name, variable in weights.items():
        assert arrays[resnet_source_name(name, form)].shape[-len(variable.shape) :] == variable.shape


@pytest.mark.parametrize("golden,stages", [("vit_jax_hybrid_stem", ()), ("vit_jax_hybrid_r50like", (2, 1))])
def test_the_files_of_hybrids_have_just_these_names(golden, stages):
    backbone = ResNetBackbone(stages, name="backbone")
    backbone.build((None, None, None, 3))
    names = {resnet_source_name(weight.path, "v1") for weight in backbone.weights}
    assert names == {name for name in golden_weights(golden) if name.startswith(("block", "conv_root", "gn_root"))}


TIMM = {
    "backbone/root/conv_root/kernel": "stem.conv.weight",
    "backbone/root/gn_root/gamma": "stem.norm.weight",
    "backbone/block1/unit1/conv_proj/kernel": "stages.0.blocks.0.downsample.conv.weight",
    "backbone/block1/unit1/gn_proj/beta": "stages.0.blocks.0.downsample.norm.bias",
    "backbone/block3/unit12/conv2/kernel": "stages.2.blocks.11.conv2.weight",
    "backbone/block3/unit12/gn3/gamma": "stages.2.blocks.11.norm3.weight",
}


def test_names_of_timms_hybrids():
    for name, expected in TIMM.items():
        assert resnet_source_name(name, "timm") == f"patch_embed.backbone.{expected}"


def test_names_of_bit_models():
    assert {name: resnet_source_name(name, "bit_models") for name in BIT_MODELS} == BIT_MODELS


@pytest.mark.parametrize("form", ["v1", "paper", "bit_models"])
def test_no_two_weights_share_a_name(form):
    model = BiT(stages=(2, 11), width_factor=0.5, num_classes=3, form="v1" if form == "v1" else "paper")
    names = [resnet_source_name(name, form) for name in named_weights(model)]
    assert len(set(names)) == len(names) == len(model.weights)


def test_numbers_of_units_have_two_digits_but_in_v1():
    name = "backbone/block3/unit7/conv1/kernel"
    assert resnet_source_name(name, "v1") == "block3/unit7/conv1/kernel"
    assert resnet_source_name(name, "paper") == "block3/unit07/conv1/kernel"
    assert resnet_source_name(name.replace("7", "12"), "v1") == "block3/unit12/conv1/kernel"


def test_counters_in_names():
    name = "resnet/block1/unit01/a/proj/standardized_conv2d_17/kernel"
    assert without_counter(name) == "resnet/block1/unit01/a/proj/standardized_conv2d/kernel"
    assert without_counter("resnet/group_norm/gamma") == "resnet/group_norm/gamma"


def test_what_has_no_name():
    cases = [
        ("head/kernel", "v2", "v1, paper, bit_models. Received: 'v2'"),
        ("norm/gamma", "v1", "'v1' has no weight norm/gamma"),
        ("backbone/root/gn_root/gamma", "paper", "'paper' has no weight"),
        ("backbone/block1/unit1/gn_proj/gamma", "bit_models", "'bit_models' has no weight"),
        ("backbone/block1/unit1/conv4/kernel", "v1", "no weight"),
        ("encoder/norm/gamma", "v1", "no weight"),
    ]
    for name, form, message in cases:
        with pytest.raises(ValueError, match=message):
            resnet_source_name(name, form)
