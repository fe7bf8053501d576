import pytest

import keras_vit
from keras_vit.weights import published
from keras_vit.weights.downloads import cache_path
from keras_vit.weights.published import FOLDERS, published_names, resolve

ADDRESSES = {
    f"augreg/{published.EXAMPLE_TUNED}": f"vit_models/augreg/{published.EXAMPLE_TUNED}.npz",
    "vit/imagenet21k/ViT-B_16.npz": "vit_models/imagenet21k/ViT-B_16.npz",
    "vit/imagenet21k+imagenet2012/R50+ViT-B_16": "vit_models/imagenet21k%2Bimagenet2012/R50%2BViT-B_16.npz",
    "vit/gsam/ViT-S_32": "vit_models/gsam/ViT-S_32.npz",
    "big_vision/vit_s16_i1k_90ep": "big_vision/vit_s16_i1k_90ep.npz",
    "big_vision/flexivit/vit_b30_i21k_300ep": "big_vision/flexivit/vit_b30_i21k_300ep.npz",
    "bit/BiT-M-R50x1-ILSVRC2012": "bit_models/BiT-M-R50x1-ILSVRC2012.npz",
    "bit/distill/R50x1_224": "bit_models/distill/R50x1_224.npz",
}


def test_addresses_of_names():
    for name, path in ADDRESSES.items():
        assert resolve(name) == f"https://storage.googleapis.com/{path}"
    for name in ("B_16.npz", "runs/model.npz", "hf:google/vit-base-patch16-224", "vit", "/bit/x", ""):
        assert resolve(name) is None
    names = published_names()
    assert len(names) == sum(len(folder.names) for folder in FOLDERS)
    assert len({resolve(name) for name in names}) == len({cache_path(name) for name in names}) == len(names)


@pytest.mark.parametrize(
    "name,nearest",
    [
        ("vit/imagenet21k/ViT-B16", "vit/imagenet21k/ViT-B_16"),
        ("vit/ViT-L_32", "vit/sam/ViT-L_32"),
        ("bit/BiT-M-R50x2", "bit/BiT-M-R50x1"),
        ("big_vision/vit_s16_i1k_300", "big_vision/vit_s16_i1k_300ep"),
    ],
)
def test_unknown_names_get_suggestions(name, nearest):
    with pytest.raises(ValueError, match=f"'{name}'.*Did you mean.*{nearest}"):
        resolve(name)


@pytest.mark.parametrize(
    "change,wrong",
    [
        (("aug_medium1", "aug_light2"), "'aug_light2'"),
        (("B_16", "B/16"), "'B/16'"),
        (("-sd_0.0", ""), "wd_0.1-do_0.0'"),
        (("imagenet2012", "imagenet"), "'imagenet'"),
        (("-res_384", ""), "lr_0.03'"),
        (("-res", "--res"), "sd_0.0'"),
    ],
)
def test_malformed_augreg_names_get_an_example(change, wrong):
    with pytest.raises(ValueError, match=f"{wrong} does not fit <") as error:
        resolve("augreg/" + published.EXAMPLE_TUNED.replace(*change))
    assert f"augreg/{published.EXAMPLE_TUNED}" in str(error.value)


def test_augreg_names_that_are_not_listed_resolve():
    name = "augreg/R_Ti_16-i1k-300ep-lr_0.001-aug_strong2-wd_0.03-do_0.1-sd_0.1--kitti-steps_0k-lr_0.003-res_224"
    assert name not in published_names() and resolve(name).endswith("--kitti-steps_0k-lr_0.003-res_224.npz")


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
