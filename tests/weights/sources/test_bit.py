"""Names of residual networks: of BiT, Big Transfer and hybrids of timm. test_loading.py has the goldens."""

import numpy as np
import pytest
from goldens import golden_io, write_arrays

import keras_vit
from keras_vit.models.bit import BiT
from keras_vit.named_weights import named_weights
from keras_vit.weights.sources.bit import BIT_MODELS, BIT_PAPER, BIT_V1
from keras_vit.weights.sources.timm import TIMM

V1, PAPER, BIG_TRANSFER, TIMM_HYBRID = (source.naming.resnet for source in (BIT_V1, BIT_PAPER, BIT_MODELS, TIMM))
STEM = "patch_embed.backbone"
NAMES = [
    (BIG_TRANSFER, "backbone/root/conv_root/kernel", "resnet/root_block/standardized_conv2d/kernel"),
    (BIG_TRANSFER, "backbone/block1/unit1/gn1/gamma", "resnet/block1/unit01/a/group_norm/gamma"),
    (BIG_TRANSFER, "backbone/block1/unit1/conv1/kernel", "resnet/block1/unit01/a/standardized_conv2d/kernel"),
    (BIG_TRANSFER, "backbone/block1/unit1/conv_proj/kernel", "resnet/block1/unit01/a/proj/standardized_conv2d/kernel"),
    (BIG_TRANSFER, "backbone/block2/unit4/conv2/kernel", "resnet/block2/unit04/b/standardized_conv2d/kernel"),
    (BIG_TRANSFER, "backbone/block3/unit23/gn2/beta", "resnet/block3/unit23/b/group_norm/beta"),
    (BIG_TRANSFER, "backbone/block4/unit3/conv3/kernel", "resnet/block4/unit03/c/standardized_conv2d/kernel"),
    (BIG_TRANSFER, "norm/gamma", "resnet/group_norm/gamma"),
    (BIG_TRANSFER, "head/kernel", "resnet/head/conv2d/kernel"),
    (BIG_TRANSFER, "head/bias", "resnet/head/conv2d/bias"),
    (TIMM_HYBRID, "backbone/root/conv_root/kernel", f"{STEM}.stem.conv.weight"),
    (TIMM_HYBRID, "backbone/root/gn_root/gamma", f"{STEM}.stem.norm.weight"),
    (TIMM_HYBRID, "backbone/block1/unit1/conv_proj/kernel", f"{STEM}.stages.0.blocks.0.downsample.conv.weight"),
    (TIMM_HYBRID, "backbone/block1/unit1/gn_proj/beta", f"{STEM}.stages.0.blocks.0.downsample.norm.bias"),
    (TIMM_HYBRID, "backbone/block3/unit12/conv2/kernel", f"{STEM}.stages.2.blocks.11.conv2.weight"),
    (TIMM_HYBRID, "backbone/block3/unit12/gn3/gamma", f"{STEM}.stages.2.blocks.11.norm3.weight"),
    (PAPER, "backbone/block3/unit7/conv1/kernel", "block3/unit07/conv1/kernel"),
    (PAPER, "backbone/root/gn_root/gamma", None),
    (BIG_TRANSFER, "backbone/block1/unit1/gn_proj/gamma", None),
]


@pytest.mark.parametrize("naming,name,expected", NAMES)
def test_names(naming, name, expected):
    assert naming.name(name) == expected


def test_files_of_big_transfer(tmp_path):
    model = BiT(stages=(1, 1), num_classes=4)
    random, arrays = np.random.default_rng(0), {}
    for i, (name, variable) in enumerate(named_weights(model).items()):
        variable.assign(variable + 0.1 * random.standard_normal(variable.shape))
        source_name = BIG_TRANSFER.name(name).replace("a/standardized_conv2d/", f"a/standardized_conv2d_{i}/")
        array = variable.numpy()
        arrays[source_name] = array[None, None] if name == "head/kernel" else array
    file, images = write_arrays(tmp_path / "x.npz", arrays), golden_io("vit_jax_token")["images"]
    np.testing.assert_allclose(keras_vit.load(file)(images), model(images), atol=1e-5)
    new = keras_vit.load(file, num_classes=3)
    assert not np.any(new.head.kernel)
    np.testing.assert_allclose(new.features(images), model.features(images), atol=1e-5)
