import keras
import numpy as np
import pytest
from goldens import golden_io, golden_weights

from keras_vit.models.bit import BiT
from keras_vit.weights.sources.bit import BIT_PAPER, BIT_V1
from keras_vit.weights.transfer import named_weights

FORMS = {"v1": {"form": "v1"}, "paper": {"form": "paper", "pool_padding": "edge"}}


@pytest.fixture
def small():
    """Builds a BiT with random weights everywhere, in the head and in the scales that start at zeros too."""

    def build(**changes):
        model = BiT(**{"stages": (1, 1), "width_factor": 0.5, "num_classes": 4, **changes})
        random = np.random.default_rng(7)
        for weight in model.weights:
            weight.assign(weight + 0.1 * random.standard_normal(weight.shape))
        return model

    return build


@pytest.mark.parametrize("form", FORMS)
def test_equals_big_vision(form):
    model = BiT(stages=(1, 1), num_classes=10, **FORMS[form])
    arrays, io = golden_weights(f"big_vision_bit_{form}"), golden_io(f"big_vision_bit_{form}")
    naming = {"v1": BIT_V1, "paper": BIT_PAPER}[form].naming.resnet
    for name, variable in named_weights(model).items():
        variable.assign(arrays.pop(naming.name(name)).reshape(variable.shape))
    assert not arrays
    np.testing.assert_allclose(model(io["images"]), io["outputs"], atol=1e-4)


def test_pool_padding_changes_outputs(small, images):
    models = [small(pool_padding=padding) for padding in ("zeros", "edge")]
    assert np.abs(np.asarray(models[0](images)) - np.asarray(models[1](images))).max() > 1e-4


@pytest.mark.parametrize("form", FORMS)
def test_keras_file_round_trip(small, images, tmp_path, form):
    changes = {"num_classes": 0, "image_size": (16, 8)} if form == "v1" else {}
    model = small(**FORMS[form], **changes)
    model.save(tmp_path / "model.keras")
    loaded = keras.saving.load_model(tmp_path / "model.keras")
    assert loaded.get_config() == model.get_config()
    np.testing.assert_array_equal(loaded(images), model(images))
    assert model.compute_output_shape(images.shape) == model(images).shape


@pytest.mark.parametrize("form", FORMS)
def test_logits_are_the_head_of_the_pooled_map(small, images, form):
    model = small(**FORMS[form])
    maps = np.asarray(model.feature_map(images))
    assert maps.shape == (3, 2, 2, 256) and maps.min() >= 0
    np.testing.assert_allclose(model.features(images), maps.mean((1, 2)), atol=1e-5)
    kernel, bias = model.head.get_weights()
    np.testing.assert_allclose(model(images), maps.mean((1, 2)) @ kernel + bias, atol=1e-4)


def test_new_model_is_built_with_a_head_of_zeros(images):
    model = BiT(stages=(1,), width_factor=0.5)
    assert model.built and model.weights and model.image_size is None
    assert not np.any(model(images)) and model(images).shape == (3, 1000)


def test_images_of_any_size(small, images):
    model = small(image_size=16)
    assert model.image_size == (16, 16)
    assert model(images[:, :13, :15]).shape == (3, 4)


def test_with_head_replaces_only_the_head(small, images):
    model = small()
    new = model.with_head(9)
    assert not np.any(new(images)) and new(images).shape == (3, 9)
    np.testing.assert_array_equal(new.features(images), model.features(images))
    np.testing.assert_array_equal(model.with_head(0)(images), model.features(images))


def test_resized_keeps_all_weights(small, images):
    model = small()
    resized = model.resized((16, 32))
    assert resized.image_size == (16, 32)
    np.testing.assert_array_equal(resized(images), model(images))


@pytest.mark.slow
def test_fit_and_predict(small, images):
    model = small(stages=(1,))
    model.compile(
        keras.optimizers.SGD(0.05, momentum=0.9), keras.losses.SparseCategoricalCrossentropy(from_logits=True)
    )
    losses = model.fit(images, np.array([0, 1, 2]), epochs=12, verbose=0).history["loss"]
    assert losses[-1] < 0.3 * losses[0]
    np.testing.assert_array_equal(model.predict(images, verbose=0).argmax(-1), [0, 1, 2])


def test_mixed_precision_keeps_logits_and_variables_float32(small, images):
    model = small(dtype="mixed_bfloat16")
    logits = model(images)
    assert keras.backend.standardize_dtype(logits.dtype) == "float32"
    assert {weight.dtype for weight in model.weights} == {"float32"}
    assert keras.backend.standardize_dtype(model.features(images).dtype) == "bfloat16"
    full = small()
    full.set_weights(model.get_weights())
    np.testing.assert_allclose(logits, full(images), atol=0.1)


@pytest.mark.slow
def test_parameter_counts():
    head = 2048 * 1000 + 1000
    # v1: the backbone and the head. The paper's form normalizes before and has no normalization in shortcuts and root.
    counts = {"v1": 23_508_032 + head, "paper": 23_500_352 + head}
    for form, count in counts.items():
        with keras.StatelessScope(initialize_variables=False):
            model = BiT(form=form)
        keras.utils.clear_session()  # forget the variables, or the next scope would initialize them
        assert model.count_params() == count


def test_no_stages():
    with pytest.raises(ValueError, match=r"at least one stage. Received: \(\)"):
        BiT(stages=())
