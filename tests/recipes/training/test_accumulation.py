import keras
import numpy as np
import pytest
import tensorflow as tf

from keras_vit.recipes.pretraining.masked_autoencoder import MaskedAutoencoderModel, draw_masking
from keras_vit.recipes.recipe.errors import RecipeError
from keras_vit.recipes.training.accumulation import accumulate_gradients, check_batch_size
from keras_vit.recipes.training.optimizers import SGD

BATCH = 12
IMAGES = np.random.default_rng(1).uniform(-1, 1, (BATCH, 8, 8, 3)).astype("float32")


def randomized(make):
    keras.utils.set_random_seed(0)
    model, random = make(), np.random.default_rng(7)
    for weight in model.weights:
        weight.assign(weight + 0.1 * random.standard_normal(weight.shape))
    return model


def vit(toy, dtype=None):
    """Relative positions, whose gradients are tf.IndexedSlices; soft labels and weights."""
    random = np.random.default_rng(2)
    model = randomized(lambda: toy(depth=1, image_size=8, position_embedding="relative", dtype=dtype))
    labels = random.dirichlet(np.ones(5), BATCH).astype("float32")
    weights = random.uniform(0, 2, BATCH).astype("float32")
    return model, keras.losses.CategoricalCrossentropy(from_logits=True), (IMAGES, labels, weights)


def masked_autoencoder(toy):
    model = randomized(lambda: MaskedAutoencoderModel(toy(depth=1, image_size=8, num_classes=0), 1, 8, 2))
    masking = draw_masking((1, 2), BATCH, 4, 0.5)
    inputs = {"images": IMAGES, **{name: np.asarray(value) for name, value in masking._asdict().items()}}
    targets = np.random.default_rng(2).standard_normal((BATCH, 2, 48)).astype("float32")
    return model, keras.losses.MeanSquaredError(), (inputs, targets)


def trained(setup, parts, jit_compile=False, **options):
    """Weights and logs after two steps on one batch."""
    model, loss, data = setup
    model.compile(SGD(0.1, momentum=0.9, global_clipnorm=0.5), loss, jit_compile=jit_compile, **options)
    accumulate_gradients(model, parts)
    logs = model.fit(tf.data.Dataset.from_tensors(data).repeat(2), shuffle=False, verbose=0).history
    return model.get_weights(), logs


def test_train_on_batch_without_weights_of_images():
    inputs, targets, found = IMAGES.reshape(BATCH, -1), np.linspace(0, 1, BATCH)[:, None], []
    for parts in (1, 3):
        model = keras.Sequential([keras.Input(inputs.shape[1:]), keras.layers.Dense(1, kernel_initializer="ones")])
        model.compile(SGD(0.1), "mse", jit_compile=False)
        accumulate_gradients(model, parts)
        found.append([float(model.train_on_batch(inputs, targets)), *model.get_weights()])
    for whole, cut in zip(*found, strict=True):
        np.testing.assert_allclose(cut, whole, atol=2e-6)


@pytest.mark.slow
@pytest.mark.parametrize("make", [vit, pytest.param(masked_autoencoder, marks=pytest.mark.extended)])
def test_parts_equal_the_whole_batch(toy, make):
    whole, logs = trained(make(toy), 1, weighted_metrics=["accuracy"])
    cut, logs_of_cut = trained(make(toy), 3, weighted_metrics=["accuracy"])
    for one, other in zip(whole, cut):
        np.testing.assert_allclose(one, other, atol=2e-6)
    for name in logs:
        np.testing.assert_allclose(logs_of_cut[name], logs[name], rtol=1e-5)


@pytest.mark.slow
def test_mixed_precision_compiled_by_xla(toy):
    # Compared to float32, since bfloat16 has 8 bits.
    setup = vit(toy, "mixed_bfloat16")
    initial = setup[0].get_weights()
    whole, _ = trained(vit(toy), 1)
    for one, other, start in zip(whole, trained(setup, 3, jit_compile=True)[0], initial):
        assert other.dtype == "float32"
        np.testing.assert_allclose(one - start, other - start, atol=0.1 * np.abs(one - start).max() + 1e-4)


def test_dropout_differs_between_parts():
    dropout, drawn, inputs = keras.layers.Dropout(0.5, seed=3), [], keras.Input((50,))
    model = keras.Model(inputs, keras.layers.Dense(1)(dropout(inputs)))
    model.compile(SGD(0.0), "mse", run_eagerly=True)
    accumulate_gradients(model, 4)
    dropout.call, call = lambda *args, **kwargs: drawn.append(call(*args, **kwargs)) or drawn[-1], dropout.call
    model.fit(np.ones((8, 50), "float32"), np.ones((8, 1)), batch_size=8, shuffle=False, verbose=0)
    assert len(drawn) == 4 and len({np.asarray(value).tobytes() for value in drawn}) == 4
    assert all(0 < np.mean(np.asarray(value) == 0) < 1 for value in drawn)


def test_weight_without_gradient_is_unchanged_as_in_keras():
    class Half(keras.Model):
        def build(self, shape):
            self.used = self.add_weight(shape=(3, 1), initializer="ones", name="kernel")
            self.spare = self.add_weight(shape=(3,), initializer="ones", name="spare")

        def call(self, inputs, training=None):
            return inputs @ self.used

    model = Half()
    model.build((None, 3))
    model.compile(SGD(0.1, weight_decay=0.1), "mse", jit_compile=False)
    accumulate_gradients(model, 2)
    with pytest.warns(UserWarning, match="Gradients do not exist"):
        model.fit(np.ones((4, 3), "float32"), np.zeros((4, 1)), batch_size=4, shuffle=False, verbose=0)
    assert np.all(np.asarray(model.spare) == 1) and np.all(np.asarray(model.used) != 1)


def test_check_batch_size():
    check_batch_size(4096, 8, 4)
    for size, fitting in ((100, [96, 112]), (4, [16])):
        with pytest.raises(RecipeError) as raised:
            check_batch_size(size, 8, 2)
        assert raised.value.received == {"data.batch_size": size, "optimizer.accumulation_steps": 2}
        assert [fields["data.batch_size"] for fields in raised.value.use] == fitting
