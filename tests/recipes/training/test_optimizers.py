import math
import re

import keras
import numpy as np
import pytest
import tensorflow as tf
from goldens import DATA

import keras_vit
from keras_vit.recipes.recipe import Optimizer
from keras_vit.recipes.recipe.errors import RecipeError
from keras_vit.recipes.training.optimizers import SGD, AdamW, Lamb, Muon, WarmupDecay, build_optimizer


def orthogonal(update):
    """Muon's update in closed form: its iteration maps each singular value by a polynomial, five times."""
    matrix = update.reshape(-1, update.shape[-1])
    left, values, right = np.linalg.svd(matrix / np.linalg.norm(matrix), full_matrices=False)
    for _ in range(5):
        values = 3.4445 * values - 4.7750 * values**3 + 2.0315 * values**5
    return 0.2 * max(matrix.shape) ** 0.5 * ((left * values) @ right).reshape(update.shape)


def by_hand(recipe, weights, gradients, decayed, factors, orthogonalized):
    """The optimizers of flax at the time of the paper, p - rate * (update + weight_decay * p), and the EMA; float64.

    The momentum of flax.optim.Momentum does not contain the rate: buffer = 0.9 buffer + gradient, p - rate * buffer.
    """
    weights = [np.float64(weight) for weight in weights]
    slots = [(np.zeros(weight.shape), np.zeros(weight.shape)) for weight in weights]
    means = None
    for step, grads in enumerate(gradients):
        norm = np.sqrt(sum((grad**2).sum() for grad in grads))
        if not np.isfinite(norm):
            continue
        scale = min(1.0, recipe.global_clipnorm / norm)
        for i, grad in enumerate(grads):
            first, second = slots[i]
            if recipe.name == "sgd":
                first = 0.9 * first + scale * grad
                update = recipe.learning_rate * factors[i] * first
            elif orthogonalized[i] and recipe.name == "muon":
                first = 0.95 * first + scale * grad
                update = recipe.learning_rate * factors[i] * orthogonal(scale * grad + 0.95 * first)
            else:
                first = 0.9 * first + 0.1 * scale * grad
                second = recipe.beta_2 * second + (1 - recipe.beta_2) * (scale * grad) ** 2
                bias = 1 - recipe.beta_2 ** (step + 1)
                # Keras's Muon adds epsilon before the correction of the bias, section 2 of arXiv 1412.6980.
                root = np.sqrt(second / bias) + 1e-8 / (np.sqrt(bias) if recipe.name == "muon" else 1)
                update = recipe.learning_rate * factors[i] * first / (1 - 0.9 ** (step + 1)) / root
            slots[i] = first, second
            decay = recipe.learning_rate * factors[i] * recipe.weight_decay * decayed[i]
            weights[i] = weights[i] - update - decay * weights[i]
        fraction = 1 if means is None else 1 - (recipe.ema_momentum or 0)
        means = [(1 - fraction) * mean + fraction * weight for mean, weight in zip(means or weights, weights)]
    return weights, means


def counters(optimizer):
    counts = (optimizer.iterations, optimizer.nonfinite_steps, optimizer.consecutive_nonfinite_steps)
    return tuple(int(count) for count in counts)


def gradients_of(model, steps):
    random = np.random.default_rng(3)
    return [[random.standard_normal(weight.shape) for weight in model.trainable_variables] for _ in range(steps)]


@pytest.mark.parametrize("name,beta_2", [("sgd", 0.999), ("adamw", 0.999), ("adamw", 0.95), ("muon", 0.95)])
def test_steps_equal_numpy(toy, name, beta_2):
    model = toy(depth=1) if name != "muon" else toy(depth=1, resnet_stages=(1,))
    decay = {"weight_decay": 0.3, "global_clipnorm": 2.0, "ema_momentum": 0.7, "layer_decay": 0.5}
    recipe = Optimizer(name, 0.05, "constant", beta_2=beta_2, **decay)
    optimizer = build_optimizer(recipe, 10, model)
    optimizer.build(model.trainable_variables)
    gradients = gradients_of(model, 4)
    gradients[2][4][...] = np.nan
    paths = [variable.path for variable in model.trainable_variables]
    decayed = [path.endswith("/kernel") for path in paths]
    factors = keras_vit.layer_wise_factors(model, 0.5)
    inner = [decay and not re.search("/(head|patch_embedding)/", path) for decay, path in zip(decayed, paths)]
    assert len({gradient.ndim for gradient, chosen in zip(gradients[0], inner) if chosen}) == 1 + (name == "muon")
    expected = by_hand(recipe, model.get_weights(), gradients, decayed, [factors[path] for path in paths], inner)
    for grads in gradients:
        optimizer.apply([tf.constant(grad, "float32") for grad in grads])
    for value, average, reference, mean in zip(model.weights, optimizer.averages, *expected):
        np.testing.assert_allclose(value, reference, atol=2e-5)
        np.testing.assert_allclose(average, mean, atol=2e-5)
    assert counters(optimizer) == (4, 1, 0)


@pytest.mark.parametrize("shape", [(16, 64), (3, 3, 8, 16)])
def test_gram_matrix_of_muon_equals_singular_values(monkeypatch, shape):
    """In a graph for a CPU, for a matrix whose singular values fall to 1e-4 of the largest."""
    monkeypatch.setattr(keras.optimizers.Muon, "zeropower_via_newtonschulz5", None)
    normal = np.random.default_rng(0).standard_normal((math.prod(shape[:-1]), shape[-1]))
    left, _, right = np.linalg.svd(normal, full_matrices=False)
    matrix = (left * np.logspace(0, -4, 16) @ right).reshape(shape)
    optimizer = Muon(0.1)
    update = tf.function(lambda x: optimizer.lr_adjust(optimizer.zeropower_via_newtonschulz5(x, 5)))
    expected = orthogonal(matrix)
    error = np.linalg.norm(update(tf.constant(matrix, "float32")) - expected) / np.linalg.norm(expected)
    assert error < 1e-5


@pytest.mark.parametrize("name", ["lamb", "lion"])
def test_steps_equal_timm_and_optax(name):
    """Five steps of timm's Lamb and optax's Lion with clipping, at changing rates; the bias has no weight decay."""
    golden = np.load(DATA / "optimizer_steps.npz")
    decay, clipnorm = float(golden["decay"]), float(golden["clipnorm"])
    optimizer = build_optimizer(Optimizer(name, weight_decay=decay, global_clipnorm=clipnorm, decay="constant"), 10)
    starts = {part: golden[f"start_{part}"].astype("float32") for part in ("kernel", "bias")}
    variables = [keras.Variable(start, dtype="float32", name=part) for part, start in starts.items()]
    optimizer.build(variables)
    for step, rate in enumerate(golden["rates"]):
        gradients = [tf.constant(golden[f"gradient_{part}"][step], "float32") for part in ("kernel", "bias")]
        optimizer.replica_update(gradients, [variable.value for variable in variables], tf.constant(rate, "float32"))
        optimizer.iterations.assign_add(1)
    for part, variable in zip(("kernel", "bias"), variables):
        np.testing.assert_allclose(variable, golden[f"{name}_{part}"], atol=1e-5)
        assert np.abs(golden[f"{name}_{part}"] - golden[f"start_{part}"]).max() > 0.1


@pytest.mark.parametrize("nesterov", [False, True])
def test_momentum_at_a_drop_of_the_rate_equals_flax(nesterov):
    """With gradients of 1 the buffer is (1 - 0.9^t) / 0.1 in closed form, whatever the rate was."""
    rates = WarmupDecay(0.1, "staircase", 0, 20, staircase=(0.5,))
    optimizer, variable = SGD(rates, momentum=0.9, nesterov=nesterov), keras.Variable(np.zeros(2, "float32"))
    optimizer.build([variable])
    expected = 0.0
    for step in range(20):
        optimizer.apply([tf.ones(2)])
        rate, buffer = (0.1 if step <= 10 else 0.01), (1 - 0.9 ** (step + 1)) / 0.1
        expected -= rate * (1 + 0.9 * buffer if nesterov else buffer)
        np.testing.assert_allclose(variable, [expected] * 2, rtol=1e-5, err_msg=str(step))


def test_a_step_whose_norm_overflows_changes_only_the_counters(toy):
    model = toy(depth=1)
    recipe = Optimizer("adamw", 0.05, "constant", weight_decay=0.3, ema_momentum=0.7, layer_decay=0.5)
    optimizer = build_optimizer(recipe, 10, model)
    optimizer.build(model.trainable_variables)
    good, after = gradients_of(model, 2)
    optimizer.apply(good)
    counted = ("/iteration", "/nonfinite_steps", "/consecutive_nonfinite_steps")
    variables = [v for v in (*model.variables, *optimizer.variables) if not v.path.endswith(counted)]
    state = [np.array(variable) for variable in variables]
    after[5].flat[0] = 1e30
    for _ in range(2):
        optimizer.apply([tf.constant(grad, "float32") for grad in after])
    for variable, before in zip(variables, state):
        np.testing.assert_array_equal(variable, before)
    assert counters(optimizer) == (3, 2, 2)
    optimizer.apply(good)
    assert counters(optimizer) == (4, 2, 0) and not np.array_equal(state[0], model.variables[0])


def test_layer_decay_requires_a_vision_transformer():
    for model in (None, keras_vit.BiT(stages=(1,), num_classes=2)):
        with pytest.raises(RecipeError) as raised:
            build_optimizer(Optimizer(layer_decay=0.7), 10, model)
        assert raised.value.received == {"optimizer.layer_decay": 0.7}


@pytest.mark.parametrize("name", ["adamw", "sgd", "muon", "lion", "lamb"])
def test_only_kernels_are_decayed(toy, name):
    parts = {"representation_size": 6, "pooling": "map", "class_token": True, "register_tokens": 1, "layer_scale": 0.1}
    model = toy(position_embedding="learned_2d", qk_norm=True, **parts)
    optimizer = build_optimizer(Optimizer(name=name, learning_rate=0.1, weight_decay=0.5, decay="constant"), 10)
    before = [weight.numpy() for weight in model.trainable_weights]
    for weight in model.trainable_weights:
        weight.assign(np.ones(weight.shape))
    optimizer.build(model.trainable_weights)
    optimizer.apply([np.zeros(value.shape, "float32") for value in before])
    names = {(weight.path.rpartition("/")[2], bool(np.allclose(weight, 1))) for weight in model.trainable_weights}
    others = ("bias", "gamma", "beta", "probe", "token", "tokens", "rows", "columns", "prefix")
    assert names == {("kernel", False), *((name, True) for name in others)}


def test_vectors_of_other_projects_are_not_decayed():
    variables = [keras.Variable(np.ones(shape, "float32"), name="scale") for shape in ((3,), (2, 3))]
    optimizer = build_optimizer(Optimizer("adamw", 0.1, "constant", weight_decay=0.5), 10)
    optimizer.build(variables)
    optimizer.apply([np.zeros(variable.shape, "float32") for variable in variables])
    assert [float(np.mean(variable)) for variable in variables] == pytest.approx([1.0, 1 - 0.1 * 0.5])


@pytest.mark.parametrize(
    "kind,options",
    [
        (AdamW, {"clipvalue": 0.2, "rate_factors": (0.5, 1)}),
        (Muon, {"adam_beta_2": 0.9}),
        (Lamb, {"loss_scaling": True}),
    ],
)
def test_serialization(kind, options):
    optimizer = kind(0.1, **options)
    copy = keras.optimizers.deserialize(keras.optimizers.serialize(optimizer))
    assert type(copy) is kind and copy.get_config() == optimizer.get_config()


@pytest.mark.parametrize("clipping", [{"clipnorm": 0.1}, {"clipvalue": 0.01}])
def test_one_device_equals_keras(toy, clipping):
    ours, theirs = toy(depth=1), toy(depth=1)
    theirs.set_weights(ours.get_weights())
    for model, optimizer in ((ours, SGD(0.3, **clipping)), (theirs, keras.optimizers.SGD(0.3, **clipping))):
        optimizer.build(model.trainable_variables)
        for gradients in gradients_of(model, 3):
            optimizer.apply([tf.constant(gradient, "float32") for gradient in gradients])
    for one, other in zip(ours.get_weights(), theirs.get_weights()):
        np.testing.assert_allclose(one, other, atol=1e-6)


def rate_by_hand(step, rate, decay, warmup, total):
    """The formulas of vit_jax (utils.py, create_learning_rate_schedule) in float64."""
    progress = min(1.0, max(0.0, (step - warmup) / (total - warmup)))
    if decay == "linear":
        end = min(1e-5, rate)
        rate = end + (rate - end) * (1.0 - progress)
    elif decay == "cosine":
        rate = rate * 0.5 * (1.0 + math.cos(math.pi * progress))
    return rate * min(1.0, step / warmup) if warmup else rate


@pytest.mark.parametrize("decay", ["cosine", "linear", "constant"])
@pytest.mark.parametrize("warmup,total", [(10_000, 312_000), (500, 20_000), (0, 1_000)])
@pytest.mark.parametrize("peak", [3e-3, 1e-7])
def test_schedule_equals_the_formula(peak, decay, warmup, total):
    schedule = WarmupDecay(peak, decay, warmup, total)
    middle = (warmup + total) // 2
    for step in (0, 1, warmup // 2, max(warmup - 1, 0), warmup, warmup + 1, middle, total - 1, total, total + 7):
        np.testing.assert_allclose(
            schedule(step), rate_by_hand(step, peak, decay, warmup, total), rtol=1e-6, atol=1e-17
        )


def test_staircase_equals_bit_hyperrule():
    # bit_hyperrule.py for 20,000 to 500,000 examples: warm-up to 500, then `if s < step: base_lr /= 10` for s of 3,000,
    # 6,000 and 9,000.
    schedule = WarmupDecay(0.003, "staircase", 500, 10_000)
    steps = (250, 500, 3_000, 3_001, 6_000, 6_001, 9_000, 9_001, 9_999)
    expected = (0.0015, 0.003, 0.003, 0.0003, 0.0003, 0.00003, 0.00003, 0.000003, 0.000003)
    np.testing.assert_allclose([schedule(step) for step in steps], expected, rtol=1e-6)
