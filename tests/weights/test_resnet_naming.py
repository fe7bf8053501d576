import pytest
from goldens import golden_weights

from keras_vit.layers.resnet.backbone import ResNetBackbone
from keras_vit.models.bit import BiT
from keras_vit.weights.sources.bit import BIT_MODELS, BIT_PAPER, BIT_V1
from keras_vit.weights.sources.timm import TIMM
from keras_vit.weights.transfer import named_weights

V1, PAPER, BIG_TRANSFER = (source.naming.resnet for source in (BIT_V1, BIT_PAPER, BIT_MODELS))
BIG_TRANSFER_NAMES = {
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
TIMM_NAMES = {
    "backbone/root/conv_root/kernel": "stem.conv.weight",
    "backbone/root/gn_root/gamma": "stem.norm.weight",
    "backbone/block1/unit1/conv_proj/kernel": "stages.0.blocks.0.downsample.conv.weight",
    "backbone/block1/unit1/gn_proj/beta": "stages.0.blocks.0.downsample.norm.bias",
    "backbone/block3/unit12/conv2/kernel": "stages.2.blocks.11.conv2.weight",
    "backbone/block3/unit12/gn3/gamma": "stages.2.blocks.11.norm3.weight",
}


@pytest.mark.parametrize("form,naming", [("v1", V1), ("paper", PAPER)])
def test_names_equal_those_in_files_of_big_vision(form, naming):
    arrays = golden_weights(f"big_vision_bit_{form}")
    weights = named_weights(BiT(stages=(1, 1), num_classes=10, form=form))
    assert sorted(naming.name(name) for name in weights) == sorted(arrays)
    for name, variable in weights.items():
        assert arrays[naming.name(name)].shape[-len(variable.shape) :] == variable.shape


@pytest.mark.parametrize("golden,stages", [("vit_jax_hybrid_stem", ()), ("vit_jax_hybrid_r50like", (2, 1))])
def test_names_equal_those_in_files_of_hybrids(golden, stages):
    backbone = ResNetBackbone(stages, name="backbone")
    backbone.build((None, None, None, 3))
    names = {V1.name(weight.path) for weight in backbone.weights}
    assert names == {name for name in golden_weights(golden) if name.startswith(("block", "conv_root", "gn_root"))}


def test_names_of_timm_hybrids():
    for name, expected in TIMM_NAMES.items():
        assert TIMM.naming.resnet.name(name) == f"patch_embed.backbone.{expected}"


def test_names_of_big_transfer():
    assert {name: BIG_TRANSFER.name(name) for name in BIG_TRANSFER_NAMES} == BIG_TRANSFER_NAMES


@pytest.mark.parametrize("naming", [V1, PAPER, BIG_TRANSFER], ids=["v1", "paper", "big_transfer"])
def test_names_are_unique(naming):
    model = BiT(stages=(2, 11), width_factor=0.5, num_classes=3, form="v1" if naming is V1 else "paper")
    names = [naming.name(name) for name in named_weights(model)]
    assert len(set(names)) == len(names) == len(model.weights) and None not in names


def test_unit_numbers_have_two_digits_except_in_v1():
    name = "backbone/block3/unit7/conv1/kernel"
    assert V1.name(name) == "block3/unit7/conv1/kernel"
    assert PAPER.name(name) == "block3/unit07/conv1/kernel"
    assert V1.name(name.replace("7", "12")) == "block3/unit12/conv1/kernel"


def test_unknown_weights_have_no_name():
    cases = [
        (V1, "norm/gamma"),
        (PAPER, "backbone/root/gn_root/gamma"),
        (BIG_TRANSFER, "backbone/block1/unit1/gn_proj/gamma"),
        (V1, "backbone/block1/unit1/conv4/kernel"),
        (V1, "encoder/norm/gamma"),
    ]
    for naming, name in cases:
        assert naming.name(name) is None
