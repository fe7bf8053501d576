"""Parameter counts to the digit, as in models_test.py of the paper's code; at 224 pixels unless the name says so."""

import re

import keras
import numpy as np
import pytest

import keras_vit
from keras_vit import variants, zoo

# With 1000 classes; with hidden tanh layer and 21,843.
COUNTS = {
    "Ti/16": (5_717_416, 9_777_171),
    "S/32": (22_878_952, 31_051_347),
    "S/16": (22_050_664, 30_223_059),
    "B/32": (88_224_232, 104_843_091),
    "B/16": (86_567_656, 103_186_515),
    "B/8": (86_576_872, 103_195_731),
    "L/32": (306_535_400, 328_949_075),
    "L/16": (304_326_632, 326_740_307),
    "L/14": (304_203_752, 326_617_427),
    "H/16": (632_199_400, 660_538_963),
    "H/14": (632_045_800, 660_385_363),
    "g/14": (1_012_611_432, 1_043_963_091),
    "G/14": (1_844_440_680, 1_881_914_835),
}
# Without head, with hidden tanh layer and 1000 classes, with mean pooling without class token and 1000.
MORE_COUNTS = {
    "Ti/16": (5_524_416, 5_754_472, 5_717_032),
    "S/16": (21_665_664, 22_198_504, 22_049_896),
}
COUNTS_AT = {
    ("B/16", 384): 86_859_496,
    ("B/32", 384): 88_297_192,
    ("H/14", 518): 633_470_440,
}


# With 1000 classes.
HYBRID_COUNTS = {
    "R+Ti/16": 6_337_704,
    "R26+S/32": 36_431_912,
    "R26+B/32": 101_383_976,
    "R50+B/16": 98_659_112,
    "R50+B/32": 110_945_832,
    "R50+L/16": 316_483_624,
    "R50+L/32": 328_994_856,
}
HYBRID_COUNTS_AT = {("R50+B/16", 384): 98_950_952, ("R50+L/32", 384): 329_092_136}
DEIT_COUNTS = {"Ti16": 5_910_800, "S16": 22_436_432, "B16": 87_338_192}
# The published BiT-M files, 1000 classes, are four times as many bytes and 296 more an array.
BIT_COUNTS = {
    "R50x1": 25_549_352,
    "R50x3": 217_319_080,
    "R101x1": 44_541_480,
    "R101x3": 387_934_888,
    "R152x2": 236_335_208,
    "R152x4": 936_533_224,
}


@pytest.fixture
def count():
    """Counts the weights of `build()` without allocating them: variables made in this scope hold no values."""

    def count_parameters(build):
        with keras.StatelessScope(initialize_variables=False):
            total = build().count_params()
        keras.utils.clear_session(free_memory=False)  # forget the variables, or the next scope would initialize them
        return total

    return count_parameters


def constructor(variant):
    letters = variant.replace("/", "")
    return getattr(keras_vit, letters.replace("+", "_ViT_") if "+" in letters else f"ViT_{letters}")


def test_every_variant_is_in_the_table_and_has_a_constructor():
    assert set(COUNTS) == set(variants.PUBLISHED) and set(HYBRID_COUNTS) == set(variants.HYBRIDS)
    for variant in (*COUNTS, *HYBRID_COUNTS):
        assert constructor(variant).__name__ in vars(zoo)
    plain = {name for name in vars(zoo) if name.startswith("ViT_")}
    assert plain == {f"ViT_{variant.replace('/', '')}" for variant in COUNTS}
    assert {name for name in vars(zoo) if name.startswith("R") and "_ViT_" in name} == {
        variant.replace("+", "_ViT_").replace("/", "") for variant in HYBRID_COUNTS
    }
    assert {name for name in vars(zoo) if name.startswith("BiT_")} == {f"BiT_{size}" for size in variants.BIT_SIZES}
    assert {size for size in variants.SIZES} == {variant.partition("/")[0] for variant in COUNTS}


@pytest.mark.parametrize("variant", COUNTS)
def test_parameter_counts(variant, count):
    build, width = constructor(variant), variants.parse_variant(variant)["width"]
    large = count(lambda: build(representation_size=width, num_classes=21843))
    assert (count(build), large) == COUNTS[variant]


@pytest.mark.parametrize("variant", MORE_COUNTS)
def test_parameter_counts_with_other_heads(variant, count):
    build, width = constructor(variant), variants.parse_variant(variant)["width"]
    headless, hidden = count(lambda: build(num_classes=0)), count(lambda: build(representation_size=width))
    assert (headless, hidden, count(lambda: build(pooling="gap"))) == MORE_COUNTS[variant]


@pytest.mark.parametrize("variant,image_size", COUNTS_AT)
def test_parameter_counts_at_higher_resolution(variant, image_size, count):
    assert count(lambda: constructor(variant)(image_size=image_size)) == COUNTS_AT[variant, image_size]


@pytest.mark.parametrize("variant", HYBRID_COUNTS)
def test_parameter_counts_of_hybrids(variant, count):
    assert count(constructor(variant)) == HYBRID_COUNTS[variant]


@pytest.mark.parametrize("variant,image_size", HYBRID_COUNTS_AT)
def test_parameter_counts_of_hybrids_at_higher_resolution(variant, image_size, count):
    assert count(lambda: constructor(variant)(image_size=image_size)) == HYBRID_COUNTS_AT[variant, image_size]


def test_parameter_counts_with_two_heads_and_with_sines_and_cosines(count):
    for letters, expected in DEIT_COUNTS.items():
        assert count(getattr(keras_vit, f"DeiT_{letters}")) == expected
    options = {"pooling": "gap", "position_embedding": "sincos_2d"}
    assert count(lambda: keras_vit.ViT_S16(**options)) == 21_974_632
    assert count(lambda: keras_vit.ViT_S16(**options, representation_size=384)) == 22_122_472


def bit_count(stages, factor, classes=1000):
    """Of the paper's form: a root, units that normalize before each convolution, one more normalization, the head."""
    total = 7 * 7 * 3 * 64 * factor
    before = 64 * factor
    for stage, units in enumerate(stages):
        filters = 64 * factor * 2**stage
        for unit in range(units):
            convolutions = before * filters + 9 * filters**2 + 4 * filters**2
            total += convolutions + 2 * (before + 2 * filters) + (unit == 0) * before * 4 * filters
            before = 4 * filters
    return total + 2 * before + classes * (before + 1)


@pytest.mark.parametrize("size", variants.BIT_SIZES)
def test_parameter_counts_of_resnets(size, count):
    build, expected = getattr(keras_vit, f"BiT_{size}"), bit_count(*variants.BIT_SIZES[size])
    assert count(build) == expected == BIT_COUNTS.get(size, expected)
    assert build.__name__ == f"BiT_{size}" and f"BiT-{size}" in build.__doc__


@pytest.mark.parametrize("patch", [16, 32])
def test_parameter_counts_of_axial_models(patch, count):
    d, m, patches = 768, 3072, (224 // patch) ** 2
    block = 4 * d * d + 2 * d * m + 9 * d + m
    expected = (patch * patch * 3 * d + d) + patches * d + 12 * 2 * block + 2 * d + 1000 * (d + 1)
    assert count(getattr(keras_vit, f"AxialViT_B{patch}")) == expected


def test_a_constructor_builds_a_model_that_runs():
    model = keras_vit.ViT_Ti16(image_size=(32, 48), num_classes=3)
    assert model.name == "ViT_Ti16"
    assert model(np.zeros((2, 32, 48, 3), "float32")).shape == (2, 3)
    assert keras_vit.ViT_Ti16.__name__ == "ViT_Ti16" and "keras_vit.ViT('Ti/16'" in keras_vit.ViT_Ti16.__doc__


def test_the_familys_constructors_take_arguments_and_give_names():
    hybrid = keras_vit.R_ViT_Ti16(image_size=(32, 64), num_classes=3)
    assert hybrid.name == "R_ViT_Ti16" and hybrid.grid == (1, 2) and hybrid.patch_embedding.patch_size == (8, 8)
    assert hybrid(np.zeros((1, 32, 64, 3), "float32")).shape == (1, 3)
    distilled = keras_vit.DeiT_Ti16(image_size=32, num_classes=3)
    assert distilled.name == "DeiT_Ti16" and distilled.arguments["gelu"] == "erf"
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


def test_models_know_their_variant():
    for name in (*variants.PUBLISHED, *variants.HYBRIDS):
        arguments = {"resnet_stages": None, **variants.parse_variant(name)}
        assert variants.name_of({**arguments, "patch_size": (arguments["patch_size"],) * 2}) == name
    assert variants.name_of({**arguments, "patch_size": (32, 32), "depth": 23}) is None
    for name, (stages, width_factor) in variants.BIT_SIZES.items():
        assert variants.name_of({"stages": list(stages), "width_factor": width_factor}) == name
    assert variants.name_of({"stages": (1, 1), "width_factor": 1}) is None
    # Of the shapes of B/16 and R50x1, but with other weights.
    assert variants.name_of({**variants.parse_variant("B/16"), "patch_size": (16, 16), "axial": True}) is None
    assert variants.name_of({"stages": (3, 4, 6, 3), "width_factor": 1, "num_heads": 8}) is None


def test_any_patch_size_can_be_named():
    assert keras_vit.ViT("Ti/4", image_size=8, num_classes=0).grid == (2, 2)


def test_any_size_can_follow_a_resnet():
    arguments = variants.parse_variant("R26+Ti/32")
    assert arguments["resnet_stages"] == (2, 2, 2, 2) and arguments["patch_size"] == 32 and arguments["width"] == 192


@pytest.mark.parametrize("name", ["X/16", "b/16", "B16", "B/", "B/0", "B/x", "B-16"])
def test_unknown_variants_are_refused(name):
    with pytest.raises(ValueError, match="Ti, S, B, L, H, g, G"):
        keras_vit.ViT(name)


@pytest.mark.parametrize("name", ["R50+B/8", "R101+B/32", "R26+B/16", "+B/16", "r50+B/16"])
def test_unknown_hybrids_are_refused(name):
    with pytest.raises(ValueError, match=r"R50\+B/32, R50\+B/16, R26\+B/32, R\+B/16. Received: '" + re.escape(name)):
        keras_vit.ViT(name)


def test_a_file_of_another_kind_is_named(toy, tmp_path):
    axial = keras_vit.AxialResNet(image_size=32, num_classes=2, stages=(3, 4, 6, 3), width_factor=0.5, num_heads=1)
    bit = keras_vit.BiT(stages=(3, 4, 6, 3), width_factor=0.5, num_classes=2)
    for name, model in {"vit.npz": toy(), "vit.keras": toy(), "bit.keras": bit, "axial.keras": axial}.items():
        keras_vit.weights.save(model, tmp_path / name)
    cases = [
        (
            keras_vit.BiT_R50x1,
            "vit.npz",
            {},
            "vit.npz is a file of VisionTransformer, which has no argument stages, w",
        ),
        (keras_vit.BiT_R50x1, "vit.keras", {}, "is a file of VisionTransformer.* Wanted: BiT; give a file of one"),
        (keras_vit.ViT_B16, "bit.keras", {}, "bit.keras is a file of BiT, which has no .* Wanted: VisionTransformer"),
        (keras_vit.BiT_R50x1, "axial.keras", {"width_factor": 0.5}, "is a file of AxialResNet. Wanted: BiT"),
        (keras_vit.AxialResNet50, "bit.keras", {"width_factor": 0.5}, "is a file of BiT. Wanted: AxialResNet"),
        (keras_vit.load, "vit.npz", {"droput": 0.1}, "has no argument droput. Known: image_size, patch_size, .*dtype"),
    ]
    for build, file, arguments, message in cases:
        with pytest.raises(ValueError, match=message):
            build(weights=tmp_path / file, **arguments)
    found = keras_vit.AxialResNet50(weights=tmp_path / "axial.keras", width_factor=0.5, num_heads=1)
    assert found.name == "AxialResNet50" and found.image_size == (32, 32)
    np.testing.assert_array_equal(found.conv_root.kernel, axial.conv_root.kernel)
