"""Subclasses of users have the shapes, weights and files of subclasses of `keras.Model`."""

import keras
import numpy as np
import pytest
import tensorflow as tf
from randomize import randomize

import keras_vit
from keras_vit.models.layer_decay import layer_wise_factors

OPTIONS = {"image_size": 8, "patch_size": 4, "depth": 1, "width": 12, "mlp_dim": 24, "num_heads": 3, "num_classes": 5}
IMAGES = np.random.default_rng(1).uniform(-1, 1, (4, 8, 8, 3)).astype("float32")
TABLE = np.random.default_rng(2).normal(size=(4, 3)).astype("float32")
register = keras.saving.register_keras_serializable("users")


@register
class Added(keras_vit.VisionTransformer):
    """Layers, also in a list, and a call that returns a dictionary."""

    def __init__(self, **kwargs):
        super().__init__(**kwargs)
        assert len(self.get_weights()) == 20  # those of the base class exist
        self.heads = [keras.layers.Dense(2), keras.Sequential([keras.layers.Dense(4, "relu"), keras.layers.Dense(3)])]

    def call(self, images, training=None):
        features = self.features(images, training=training)
        return {"features": features, "outputs": [head(features) for head in self.heads]}


@register
class OtherHead(keras_vit.BiT):
    def __init__(self, **kwargs):
        super().__init__(stages=(1,), width_factor=0.5, num_classes=2, **kwargs)
        self.head = keras.layers.Dense(7)

    def get_config(self):
        names = ("name", "image_size", "added")
        return {name: value for name, value in super().get_config().items() if name in names}


@register
class OwnBuild(Added):
    def __init__(self, units=6, **kwargs):
        super().__init__(**kwargs)
        self.units = units

    def build(self, input_shape):
        self.last = keras.layers.Dense(self.units)
        self.last.build((None, 3))
        super().build(input_shape)

    def call(self, images, training=None):
        return self.last(super().call(images, training=training)["outputs"][1])

    def get_config(self):
        return {**super().get_config(), "units": self.units}


@register
class WithTable(keras_vit.VisionTransformer):
    """Other inputs than images: built, as every Keras model is, by its first call."""

    def __init__(self, **kwargs):
        super().__init__(**kwargs)
        self.table, self.outputs_layer = keras.layers.Dense(12), keras.layers.Dense(3)

    def call(self, inputs, training=None):
        images, table = inputs
        return self.outputs_layer(self.features(images, training=training) + self.table(table))


@register
class Projected(keras_vit.VisionTransformer):
    def __init__(self, **kwargs):
        super().__init__(**kwargs)
        self.projection = keras.Sequential([keras.layers.Dense(9, "relu"), keras.layers.Dense(7)])

    def call(self, images, training=None):
        return self.projection(self.features(images, training=training))


@register
class TwoArguments(WithTable):
    def call(self, images, table, training=None):
        return super().call([images, table], training=training)


def numpy(outputs):
    return [np.asarray(output) for output in keras.tree.flatten(outputs)]


def reloaded(model, path):
    model.save(path)
    return keras.saving.load_model(path)


@pytest.mark.slow
@pytest.mark.parametrize(
    "build,shape,weights",
    [
        (lambda: Added(**OPTIONS), {"features": (None, 12), "outputs": [(None, 2), (None, 3)]}, 26),
        (lambda: OtherHead(image_size=8), (None, 7), None),
        (lambda: OwnBuild(4, **OPTIONS), (None, 4), 28),
    ],
)
def test_built_traced_and_saved(build, shape, weights, tmp_path):
    model = build()
    assert model.built and model.output_shape == shape and model.count_params()
    assert weights is None or len(model.weights) == weights
    inputs = keras.Input((8, 8, 3))
    around = keras.Model(inputs, model(inputs))
    assert keras.tree.map_structure(lambda x: x.shape, around.output) == shape
    expected = numpy(randomize(model)(IMAGES))
    copies = around(IMAGES), reloaded(model, tmp_path / "m.keras")(IMAGES), model.resized(8)(IMAGES)
    for copy in copies:
        for ours, theirs in zip(numpy(copy), expected, strict=True):
            np.testing.assert_allclose(ours, theirs, atol=1e-5)
    with pytest.raises(ValueError, match="already built"):
        model.another = keras.layers.Dense(1)


@pytest.mark.slow
@pytest.mark.parametrize("kind,inputs", [(WithTable, ([IMAGES, TABLE],)), (TwoArguments, (IMAGES, TABLE))])
def test_other_inputs(kind, inputs, tmp_path):
    model = kind(**OPTIONS)
    assert not model.built
    model(*inputs)
    expected = randomize(model)(*inputs)
    assert model.built and len(model.weights) == 24
    np.testing.assert_allclose(reloaded(model, tmp_path / "m.keras")(*inputs), expected, atol=1e-6)


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore:Layer .* does not have a `quantize` method")
@pytest.mark.parametrize("mode", [None, "int8", "lora"])
def test_what_is_done_to_added_layers_is_saved(mode, tmp_path):
    model = randomize(Projected(**OPTIONS))
    first, last = model.projection.layers
    if mode == "lora":
        first.enable_lora(2)
    elif mode:
        model.quantize(mode)
    model.freeze_encoder(1)
    last.trainable = False
    copy = reloaded(model, tmp_path / "m.keras")
    assert [layer.quantization_mode for layer in copy.projection.layers] == [None if mode == "lora" else mode] * 2
    assert [layer.trainable for layer in copy.projection.layers] == [True, False]
    assert len(copy.trainable_weights) == len(model.trainable_weights) > 2
    factors = layer_wise_factors(model, 0.5)
    assert [factors[weight.path] for weight in first.trainable_weights] == [1] * len(first.trainable_weights)
    np.testing.assert_allclose(copy(IMAGES), model(IMAGES), atol=1e-6)


@register
class OwnStep(keras_vit.VisionTransformer):
    """A projector that only the `train_step` calls."""

    def __init__(self, **kwargs):
        super().__init__(**kwargs)
        self.projector = keras.Sequential([keras.layers.Dense(8, "relu"), keras.layers.Dense(4)])

    def train_step(self, images):
        with tf.GradientTape() as tape:
            loss = keras.ops.mean(self.projector(self.features(images, training=True)) ** 2)
        self.optimizer.apply(tape.gradient(loss, self.trainable_weights), self.trainable_weights)
        return {"loss": loss}


@pytest.mark.slow
def test_layers_of_a_training_step_are_saved(tmp_path):
    model = OwnStep(**{**OPTIONS, "num_classes": 0})
    model.projector.layers[0].trainable = False
    model.compile(keras.optimizers.SGD(0.1, momentum=0.9))
    model.fit(IMAGES, verbose=0)
    for copy in (reloaded(model, tmp_path / "m.keras"), model.resized(8), keras.models.clone_model(model)):
        assert copy.count_params() == model.count_params()
        assert [w.trainable for w in copy.weights] == [w.trainable for w in model.weights]
    loaded = keras.saving.load_model(tmp_path / "m.keras")
    for name in ("weights", "optimizer.variables"):
        values = [[np.asarray(v) for v in eval(f"each.{name}", {"each": each})] for each in (model, loaded)]
        np.testing.assert_equal(*values)


@register
class OwnCompile(keras_vit.VisionTransformer):
    def compile(self, temperature=1.0, **kwargs):
        super().compile(**kwargs)
        self.temperature = temperature


def test_a_compile_of_its_own_is_not_called_on_load(tmp_path):
    model = OwnCompile(**OPTIONS)
    model.compile(temperature=2.0, optimizer="sgd", loss="mse")
    with pytest.warns(UserWarning, match="method is custom"):
        assert not hasattr(reloaded(model, tmp_path / "m.keras"), "optimizer")
