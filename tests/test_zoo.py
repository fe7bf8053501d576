"""Constructors of the zoo: parameter counts, published or by a closed form, names, checkpoints of another kind."""

import inspect
import re

import keras
import numpy as np
import pytest

import keras_vit
from keras_vit import BiTConfig, ViTConfig, variants, zoo

# MODEL_SIZES of models_test.py in google-research/vision_transformer (c6de1e5), 1000 classes, 224 pixels. Its other
# entries are of average pooling: "B/16" and so on with "gap".
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
# Computed by hand from the closed form of the architecture.
COMPUTED = {
    "L/14": 304_203_752,
    "H/16": 632_199_400,
    "g/14": 1_012_611_432,
    "G/14": 1_844_440_680,
    "R50+B/32": 110_945_832,
    "R50+L/16": 316_483_624,
}
SINCOS = {"pooling": "gap", "position_embedding": "sincos_2d"}
COUNTS = [
    *((variant, {}, count) for variant, count in (PUBLISHED | COMPUTED).items()),
    *((variant, {"pooling": "gap"}, count) for variant, count in PUBLISHED_GAP.items()),
    ("B/16", {"representation_size": 768, "num_classes": 21843}, 103_186_515),
    ("G/14", {"representation_size": 1664, "num_classes": 21843}, 1_881_914_835),
    ("Ti/16", {"num_classes": 0}, 5_524_416),
    ("S/16", SINCOS, 21_974_632),
    ("S/16", {**SINCOS, "representation_size": 384}, 22_122_472),
    ("H/14", {"image_size": 518}, 633_470_440),
    ("R50+B/16", {"image_size": 384}, 98_950_952),
    ("DeiT_Ti16", {}, 5_910_800),
    ("DeiT_S16", {}, 22_436_432),
    ("DeiT_B16", {}, 87_338_192),
]
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
    """Constructors return their configuration instead of a model."""
    monkeypatch.setattr(zoo, "VisionTransformer", lambda name, **fields: ViTConfig(**fields))
    monkeypatch.setattr(zoo, "BiT", lambda name, **fields: BiTConfig(**fields))


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


def bit_count(config):
    """BiT of form "paper": a root, units that normalize before each convolution, one more normalization, the head."""
    channels = 64 * config.width_factor
    total = 7 * 7 * 3 * channels
    for stage, units in enumerate(config.stages):
        filters = 64 * config.width_factor * 2**stage
        for unit in range(units):
            convolutions = channels * filters + 9 * filters**2 + 4 * filters**2
            total += convolutions + 2 * (channels + 2 * filters) + (unit == 0) * channels * 4 * filters
            channels = 4 * filters
    return total + 2 * channels + config.num_classes * (channels + 1)


def constructor(variant):
    """That of "B/16" or "R50+B/16", or of its own name."""
    letters = variant.replace("/", "").replace("+", "_ViT_")
    return getattr(keras_vit, letters if "_" in letters else f"ViT_{letters}")


def test_every_variant_has_a_constructor_and_a_count():
    assert {name.partition("/")[0] for name in {*PUBLISHED, *COMPUTED} - {*variants.HYBRIDS}} == {*variants.SIZES}
    found = {name for name, thing in vars(zoo).items() if inspect.isfunction(thing) and re.search("ViT_|BiT_", name)}
    plain = {constructor(variant).__name__ for variant in (*PUBLISHED, *COMPUTED)}
    assert found == plain | {f"BiT_{size}" for size in variants.BIT_SIZES} | {"AxialViT_B16", "AxialViT_B32"}


@pytest.mark.parametrize("variant,options,expected", COUNTS, ids=str)
def test_parameter_counts(variant, options, expected, configs):
    assert vit_count(constructor(variant)(**options)) == expected


# One model of each kind; the closed forms of all options are compared in tests/models/test_vit.py, too.
@pytest.mark.parametrize(
    "name,options",
    [
        ("ViT_Ti16", {"representation_size": 192, "num_classes": 21843}),
        ("ViT_S32", {**SINCOS, "depth": 1}),
        ("R_ViT_Ti16", {"image_size": 384, "depth": 1}),
        ("R26_ViT_S32", {"depth": 1}),
        ("DeiT_Ti16", {"depth": 2}),
        ("AxialViT_B32", {"depth": 2}),
        ("BiT_R50x1", {}),
    ],
)
def test_closed_forms_count_the_weights_of_real_models(name, options, count, request):
    build = getattr(keras_vit, name)
    found = count(lambda: build(**options))
    request.getfixturevalue("configs")
    config = build(**options)
    assert found == (bit_count(config) if name.startswith("BiT") else vit_count(config))


@pytest.mark.parametrize("size", variants.BIT_SIZES)
def test_parameter_counts_of_resnets(size, configs):
    config = getattr(keras_vit, f"BiT_{size}")()
    assert bit_count(config) == BIT_COUNTS.get(size, bit_count(config)) and config.form == "paper"
    assert (config.stages, config.width_factor) == variants.BIT_SIZES[size]
    axial = keras_vit.AxialViT_B16()
    assert axial == ViTConfig(image_size=224, **variants.parse_variant("B/16"), axial=True, pooling="gap")


def test_names_of_variants():
    for name in (*PUBLISHED, *COMPUTED, "R6+Ti/4"):
        arguments = {"resnet_stages": None, **variants.parse_variant(name)}
        assert variants.variant_name({**arguments, "patch_size": (arguments["patch_size"],) * 2}) == name
    for name, (stages, width_factor) in variants.BIT_SIZES.items():
        assert variants.variant_name({"stages": list(stages), "width_factor": width_factor}) == name
    for other in (
        {**arguments, "patch_size": (4, 4), "depth": 3},
        {**arguments, "patch_size": (4, 4), "resnet_form": "v1"},
        {"stages": (1, 1), "width_factor": 1},
        # Of the shapes of B/16 and R50x1, but with other weights.
        {**variants.parse_variant("B/16"), "patch_size": (16, 16), "axial": True},
        {"stages": (3, 4, 6, 3), "width_factor": 1, "num_heads": 8},
    ):
        assert variants.variant_name(other) is None
    assert keras_vit.ViT("Ti/4", image_size=8, num_classes=0, depth=1).grid == (2, 2)
    arguments = variants.parse_variant("R26+Ti/32")
    assert (arguments["resnet_stages"], arguments["patch_size"], arguments["width"]) == ((2, 2, 2, 2), 32, 192)


@pytest.mark.parametrize("name", ["X/16", "b/16", "B/", "B/x", "B-16", "R50+B/8", "R101+B/32", "+B/16", "r50+B/16"])
def test_unknown_variants(name):
    with pytest.raises(ValueError, match=f"Received: '{re.escape(name)}'"):
        keras_vit.ViT(name)


def test_constructors_take_arguments_and_set_names():
    built = {}
    for name, changes in (
        ("ViT_Ti16", {"image_size": (32, 48), "depth": 1}),
        ("R_ViT_Ti16", {"image_size": (32, 64), "depth": 1}),
        ("DeiT_Ti16", {"image_size": 32, "depth": 1}),
        ("AxialViT_B32", {"image_size": 64, "depth": 1}),
        ("BiT_R50x1", {}),
        ("AxialResNet50", {}),
    ):
        build = getattr(keras_vit, name)
        with keras.StatelessScope(initialize_variables=False):
            built[name], mine = build(**changes, num_classes=3), build(**changes, num_classes=2, name="mine")
        keras.utils.clear_session(free_memory=False)
        assert (built[name].name, build.__name__, mine.name, mine.output_shape) == (name, name, "mine", (None, 2))
    assert built["ViT_Ti16"].grid == (2, 3) and built["R_ViT_Ti16"].grid == (1, 2)
    assert built["R_ViT_Ti16"].patch_embedding.patch_size == (8, 8)
    assert built["DeiT_Ti16"].config.gelu == "erf" and built["DeiT_Ti16"].config.distillation


@pytest.mark.slow
def test_checkpoints_of_another_kind(toy, tmp_path):
    small = {"stages": (1,), "width_factor": 0.5}
    axial = keras_vit.AxialResNet(image_size=32, num_classes=2, num_heads=1, **small)
    bit = keras_vit.BiT(num_classes=2, **small)
    for name, model in {"vit.npz": toy(), "vit.keras": toy(), "bit.keras": bit, "axial.keras": axial}.items():
        keras_vit.weights.save(model, tmp_path / name)
    for build, file, arguments, message in (
        (keras_vit.BiT_R50x1, "vit.npz", {}, "VisionTransformer.* no argument stages"),
        (keras_vit.BiT_R50x1, "vit.keras", {}, "VisionTransformer.* Expected a checkpoint of BiT"),
        (keras_vit.ViT_B16, "bit.keras", {}, "BiT.* Expected a checkpoint of VisionTransformer"),
        (keras_vit.BiT_R50x1, "axial.keras", small, "AxialResNet. Expected a checkpoint of BiT"),
        (keras_vit.AxialResNet50, "bit.keras", small, "BiT. Expected a checkpoint of AxialResNet"),
        (keras_vit.load, "vit.npz", {"droput": 0.1}, "droput"),
    ):
        with pytest.raises(ValueError, match=message):
            build(weights=tmp_path / file, **arguments)
    found = keras_vit.AxialResNet50(weights=tmp_path / "axial.keras", num_heads=1, **small)
    assert found.name.startswith("AxialResNet50") and found.image_size == (32, 32)
    np.testing.assert_array_equal(found.conv_root.kernel, axial.conv_root.kernel)


def test_default_names_are_numbered(tmp_path):
    """Twins are layers of one functional model, which is saved; a name that is given remains."""
    options = {"image_size": 32, "depth": 1, "num_classes": 0}
    twins = [keras_vit.ViT_Ti16(**options), keras_vit.ViT("Ti/16", **options), keras_vit.ViT_Ti16(**options)]
    assert [model.name for model in twins] == ["ViT_Ti16", "ViT_Ti16_1", "ViT_Ti16_2"]
    assert keras_vit.ViT_Ti16(**options, name="mine").name == "mine"
    resnets = [keras_vit.zoo.named({}, "BiT_R50x1")["name"] for _ in range(2)]
    assert resnets == ["BiT_R50x1", "BiT_R50x1_1"]
    first, second = keras.Input((32, 32, 3)), keras.Input((32, 32, 3))
    model = keras.Model([first, second], twins[0](first) - twins[1](second))
    images = np.random.default_rng(0).uniform(-1, 1, (2, 1, 32, 32, 3)).astype("float32")
    model.save(tmp_path / "twins.keras")
    again = keras.saving.load_model(tmp_path / "twins.keras")
    np.testing.assert_allclose(again(list(images)), twins[0](images[0]) - twins[1](images[1]), atol=1e-5)
