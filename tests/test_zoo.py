"""Parameter counts to the digit, as in models_test.py of the paper's code; at 224 pixels unless the name says so."""

import keras
import numpy as np
import pytest

import keras_vit
from keras_vit import variants, zoo

# Without head, with 1000 classes, with hidden tanh layer and 1000, with it and 21,843, and mean pooling without class
# token and 1000.
COUNTS = {
    "Ti/16": (5_524_416, 5_717_416, 5_754_472, 9_777_171, 5_717_032),
    "S/32": (22_493_952, 22_878_952, 23_026_792, 31_051_347, 22_878_184),
    "S/16": (21_665_664, 22_050_664, 22_198_504, 30_223_059, 22_049_896),
    "B/32": (87_455_232, 88_224_232, 88_814_824, 104_843_091, 88_222_696),
    "B/16": (85_798_656, 86_567_656, 87_158_248, 103_186_515, 86_566_120),
    "B/8": (85_807_872, 86_576_872, 87_167_464, 103_195_731, 86_575_336),
    "L/32": (305_510_400, 306_535_400, 307_585_000, 328_949_075, 306_533_352),
    "L/16": (303_301_632, 304_326_632, 305_376_232, 326_740_307, 304_324_584),
    "L/14": (303_178_752, 304_203_752, 305_253_352, 326_617_427, 304_201_704),
    "H/16": (630_918_400, 632_199_400, 633_839_080, 660_538_963, 632_196_840),
    "H/14": (630_764_800, 632_045_800, 633_685_480, 660_385_363, 632_043_240),
    "g/14": (1_011_202_432, 1_012_611_432, 1_014_595_304, 1_043_963_091, 1_012_608_616),
    "G/14": (1_842_775_680, 1_844_440_680, 1_847_211_240, 1_881_914_835, 1_844_437_352),
}
COUNTS_AT = {
    ("Ti/16", 384): 5_790_376,
    ("S/16", 384): 22_196_584,
    ("S/32", 384): 22_915_432,
    ("B/16", 384): 86_859_496,
    ("B/32", 384): 88_297_192,
    ("L/16", 384): 304_715_752,
    ("L/32", 384): 306_632_680,
    ("L/16", 512): 305_174_504,
    ("H/14", 518): 633_470_440,
    ("H/14", 378): 632_651_240,
    ("H/16", 384): 632_685_800,
}


@pytest.fixture
def count():
    """Counts the weights of `build()` without allocating them: variables made in this scope hold no values."""

    def count_parameters(build):
        with keras.StatelessScope(initialize_variables=False):
            total = build().count_params()
        keras.utils.clear_session()  # forget the variables, or the next scope would initialise them
        return total

    return count_parameters


def constructor(variant):
    return getattr(keras_vit, f"ViT_{variant.replace('/', '')}")


def test_every_variant_is_in_the_table_and_has_a_constructor():
    assert set(COUNTS) == set(variants.PUBLISHED)
    built = {name for name in vars(zoo) if name.startswith("ViT_")}
    assert built == {f"ViT_{variant.replace('/', '')}" for variant in COUNTS}
    assert {size for size in variants.SIZES} == {variant.partition("/")[0] for variant in COUNTS}


@pytest.mark.parametrize("variant", COUNTS)
def test_parameter_counts(variant, count):
    build, width = constructor(variant), variants.parse_variant(variant)[0].width
    counts = (
        count(lambda: build(num_classes=0)),
        count(build),
        count(lambda: build(representation_size=width)),
        count(lambda: build(representation_size=width, num_classes=21843)),
        count(lambda: build(pooling="gap")),
    )
    assert counts == COUNTS[variant]


@pytest.mark.parametrize("variant,image_size", COUNTS_AT)
def test_parameter_counts_at_higher_resolution(variant, image_size, count):
    assert count(lambda: constructor(variant)(image_size=image_size)) == COUNTS_AT[variant, image_size]


def test_a_constructor_builds_a_model_that_runs():
    model = keras_vit.ViT_Ti16(image_size=(32, 48), num_classes=3)
    assert model.name == "ViT_Ti16"
    assert model(np.zeros((2, 32, 48, 3), "float32")).shape == (2, 3)
    assert keras_vit.ViT_Ti16.__name__ == "ViT_Ti16" and "ViT-Ti/16" in keras_vit.ViT_Ti16.__doc__


def test_any_patch_size_can_be_named():
    assert keras_vit.ViT("Ti/4", image_size=8, num_classes=0).grid == (2, 2)


@pytest.mark.parametrize("name", ["X/16", "b/16", "B16", "B/", "B/0", "B/x", "B-16"])
def test_unknown_variants_are_refused(name):
    with pytest.raises(ValueError, match="Ti, S, B, L, H, g, G"):
        keras_vit.ViT(name)
