"""Exact parameter counts, published or by a closed form; at 224 pixels unless stated otherwise."""

import re

import keras
import pytest

import keras_vit
from keras_vit import BiTConfig, ViTConfig, variants, zoo

# MODEL_SIZES of models_test.py in google-research/vision_transformer (c6de1e5), 1000 classes. Its other entries are of
# average pooling: "B/16" and so on with "gap".
PUBLISHED = {
    "Ti/16": 5_717_416,
    "S/32": 22_878_952,
    "S/16": 22_050_664,
    "B/32": 88_224_232,
    "B/16": 86_567_656,
    "B/8": 86_576_872,
    "L/32": 306_535_400,
    "L/16": 304_326_632,
    "H/14": 632_045_800,
    "R+Ti/16": 6_337_704,
    "R26+S/32": 36_431_912,
    "R26+B/32": 101_383_976,
    "R50+B/16": 98_659_112,
    "R50+L/32": 328_994_856,
}
PUBLISHED_GAP = {"S/32": 22_878_184, "S/16": 22_049_896, "B/32": 88_222_696, "B/16": 86_566_120}
# Computed by hand from the closed form of the architecture: with 1000 classes; with hidden tanh layer and 21,843.
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
    """Counts the weights of `build()` without allocating them: variables created in this scope hold no values."""

    def count_parameters(build):
        with keras.StatelessScope(initialize_variables=False):
            total = build().count_params()
        keras.utils.clear_session(free_memory=False)  # forget the variables, or the next scope would initialize them
        return total

    return count_parameters


@pytest.fixture
def configs(monkeypatch):
    """Constructors return their ViTConfig instead of a model."""
    monkeypatch.setattr(zoo, "VisionTransformer", lambda name, **fields: ViTConfig(**fields))


def vit_count(config):
    """The number of weights of a VisionTransformer, from its configuration."""
    d, m, (rows, columns) = config.width, config.mlp_dim, config.grid
    pixels, channels = config.patch_size[0] * config.patch_size[1], 3
    total = 0
    if config.resnet_stages is not None:
        stages = config.resnet_stages
        pixels //= (4 * 2 ** max(len(stages) - 1, 0)) ** 2
        channels = 256 * 2 ** (len(stages) - 1) if stages else 64
        total += resnet_count(stages)
    total += (pixels * channels + 1) * d + config.prefix_tokens * d
    if config.position_embedding == "learned_1d":
        total += (rows * columns + config.prefix_tokens) * d
    block = 4 * d * d + 2 * d * m + 9 * d + m
    total += config.depth * block * (2 if config.axial else 1) + 2 * d
    hidden = config.representation_size or 0
    total += hidden * (d + 1)
    return total + (1 + config.distillation) * config.num_classes * ((hidden or d) + 1)


def resnet_count(stages):
    """The ResNet of hybrids: root and units, a group normalization after each convolution."""
    total, channels = (7 * 7 * 3 + 2) * 64, 64
    for stage, units in enumerate(stages):
        filters = 64 * 2**stage
        for unit in range(units):
            total += (channels + 2) * filters + (9 * filters + 2) * filters + (filters + 2) * 4 * filters
            total += (unit == 0) * (channels + 2) * 4 * filters
            channels = 4 * filters
    return total


def bit_count(stages, factor, classes=1000):
    """BiT of form "paper": a root, units that normalize before each convolution, one more normalization, the head."""
    total = 7 * 7 * 3 * 64 * factor
    channels = 64 * factor
    for stage, units in enumerate(stages):
        filters = 64 * factor * 2**stage
        for unit in range(units):
            convolutions = channels * filters + 9 * filters**2 + 4 * filters**2
            total += convolutions + 2 * (channels + 2 * filters) + (unit == 0) * channels * 4 * filters
            channels = 4 * filters
    return total + 2 * channels + classes * (channels + 1)


def constructor(variant):
    letters = variant.replace("/", "")
    return getattr(keras_vit, letters.replace("+", "_ViT_") if "+" in letters else f"ViT_{letters}")


def test_every_variant_is_in_the_table_and_has_a_constructor():
    assert set(HYBRID_COUNTS) == set(variants.HYBRIDS)
    for variant in (*COUNTS, *HYBRID_COUNTS):
        assert constructor(variant).__name__ in vars(zoo)
    plain = {name for name in vars(zoo) if name.startswith("ViT_")}
    assert plain == {f"ViT_{variant.replace('/', '')}" for variant in COUNTS}
    assert {name for name in vars(zoo) if name.startswith("R") and "_ViT_" in name} == {
        variant.replace("+", "_ViT_").replace("/", "") for variant in HYBRID_COUNTS
    }
    assert {name for name in vars(zoo) if name.startswith("BiT_")} == {f"BiT_{size}" for size in variants.BIT_SIZES}
    assert {size for size in variants.SIZES} == {variant.partition("/")[0] for variant in COUNTS}


# One model of each kind; the closed forms of all options are compared in tests/models/test_vit_options.py, too.
BUILT = {
    "ViT_Ti16": {"representation_size": 192, "num_classes": 21843},
    "ViT_S32": {"pooling": "gap", "position_embedding": "sincos_2d"},
    "R_ViT_Ti16": {"image_size": 384},
    "R26_ViT_S32": {"depth": 1},
    "DeiT_Ti16": {"depth": 2},
    "AxialViT_B32": {"depth": 2},
}


@pytest.mark.parametrize("name", BUILT)
def test_closed_form_counts_the_weights_of_real_models(name, count, monkeypatch):
    build, options = getattr(keras_vit, name), BUILT[name]
    found = count(lambda: build(**options))
    monkeypatch.setattr(zoo, "VisionTransformer", lambda name, **fields: ViTConfig(**fields))
    assert found == vit_count(build(**options))


@pytest.mark.parametrize("variant", COUNTS)
def test_parameter_counts(variant, configs):
    build, width = constructor(variant), variants.parse_variant(variant)["width"]
    large = vit_count(build(representation_size=width, num_classes=21843))
    assert (vit_count(build()), large) == COUNTS[variant]


def test_published_parameter_counts(configs):
    for variant, published in PUBLISHED.items():
        assert vit_count(constructor(variant)()) == published, variant
    for variant, published in PUBLISHED_GAP.items():
        assert vit_count(constructor(variant)(pooling="gap")) == published, variant


@pytest.mark.parametrize("variant", MORE_COUNTS)
def test_parameter_counts_with_other_heads(variant, configs):
    build, width = constructor(variant), variants.parse_variant(variant)["width"]
    options = ({"num_classes": 0}, {"representation_size": width}, {"pooling": "gap"})
    assert tuple(vit_count(build(**changes)) for changes in options) == MORE_COUNTS[variant]


def test_parameter_counts_at_higher_resolution(configs):
    for (variant, image_size), expected in (COUNTS_AT | HYBRID_COUNTS_AT).items():
        assert vit_count(constructor(variant)(image_size=image_size)) == expected


@pytest.mark.parametrize("variant", HYBRID_COUNTS)
def test_parameter_counts_of_hybrids(variant, configs):
    assert vit_count(constructor(variant)()) == HYBRID_COUNTS[variant]


def test_parameter_counts_with_two_heads_and_with_sines_and_cosines(configs):
    for letters, expected in DEIT_COUNTS.items():
        assert vit_count(getattr(keras_vit, f"DeiT_{letters}")()) == expected
    options = {"pooling": "gap", "position_embedding": "sincos_2d"}
    assert vit_count(keras_vit.ViT_S16(**options)) == 21_974_632
    assert vit_count(keras_vit.ViT_S16(**options, representation_size=384)) == 22_122_472


def test_closed_form_counts_the_weights_of_a_real_resnet(count):
    assert count(keras_vit.BiT_R50x1) == bit_count(*variants.BIT_SIZES["R50x1"])


@pytest.mark.parametrize("size", variants.BIT_SIZES)
def test_parameter_counts_of_resnets(size, monkeypatch):
    monkeypatch.setattr(zoo, "BiT", lambda name, **fields: BiTConfig(**fields))
    build = getattr(keras_vit, f"BiT_{size}")
    config = build()
    found = bit_count(config.stages, config.width_factor, config.num_classes)
    assert found == BIT_COUNTS.get(size, found) and config.form == "paper"
    assert (config.stages, config.width_factor) == variants.BIT_SIZES[size]
    assert build.__name__ == f"BiT_{size}" and f"BiT-{size}" in build.__doc__


@pytest.mark.parametrize("patch", [16, 32])
def test_axial_models_have_two_blocks_in_place_of_one(patch, configs):
    config = getattr(keras_vit, f"AxialViT_B{patch}")()
    assert config == ViTConfig(image_size=224, **variants.parse_variant(f"B/{patch}"), axial=True, pooling="gap")


def test_names_of_variants():
    for name in (*COUNTS, *variants.HYBRIDS, "R6+Ti/4"):
        arguments = {"resnet_stages": None, **variants.parse_variant(name)}
        assert variants.variant_name({**arguments, "patch_size": (arguments["patch_size"],) * 2}) == name
    assert variants.variant_name({**arguments, "patch_size": (4, 4), "depth": 3}) is None
    for name, (stages, width_factor) in variants.BIT_SIZES.items():
        assert variants.variant_name({"stages": list(stages), "width_factor": width_factor}) == name
    assert variants.variant_name({"stages": (1, 1), "width_factor": 1}) is None
    assert variants.variant_name({**arguments, "patch_size": (4, 4), "resnet_form": "v1"}) is None
    # Of the shapes of B/16 and R50x1, but with other weights.
    assert variants.variant_name({**variants.parse_variant("B/16"), "patch_size": (16, 16), "axial": True}) is None
    assert variants.variant_name({"stages": (3, 4, 6, 3), "width_factor": 1, "num_heads": 8}) is None


def test_any_patch_size():
    assert keras_vit.ViT("Ti/4", image_size=8, num_classes=0).grid == (2, 2)


def test_any_size_after_a_resnet():
    arguments = variants.parse_variant("R26+Ti/32")
    assert arguments["resnet_stages"] == (2, 2, 2, 2) and arguments["patch_size"] == 32 and arguments["width"] == 192


@pytest.mark.parametrize("name", ["X/16", "b/16", "B16", "B/", "B/0", "B/x", "B-16"])
def test_unknown_variants(name):
    with pytest.raises(ValueError, match="Ti, S, B, L, H, g, G"):
        keras_vit.ViT(name)


@pytest.mark.parametrize("name", ["R50+B/8", "R101+B/32", "R26+B/16", "+B/16", "r50+B/16"])
def test_unknown_hybrids(name):
    with pytest.raises(
        ValueError, match=r"R50\+B/32, R50\+B/16, R26\+B/32, R\+B/16, R6\+B/4. Received: '" + re.escape(name)
    ):
        keras_vit.ViT(name)
