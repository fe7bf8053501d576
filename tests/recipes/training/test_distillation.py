"""DeiT's distillation against its formulas, and training with teachers of every kind."""

from dataclasses import replace

import keras
import numpy as np
import pytest
import tensorflow as tf
from simulated_tpu import simulated_tpu

import keras_vit
from keras_vit import BiT
from keras_vit.export import write_saved_model
from keras_vit.recipes.processes.strategies import choose_strategy
from keras_vit.recipes.recipe import Data, Distillation
from keras_vit.recipes.training.accumulation import accumulate_gradients
from keras_vit.recipes.training.distillation import (
    DistillationModel,
    Teacher,
    TeacherLoss,
    build_distillation,
    load_teacher,
)
from keras_vit.recipes.training.losses import Softmax
from keras_vit.weights import save

DATA = Data(image_size=16)
LABELS = np.array([4, 0, 2])


@pytest.fixture
def logits():
    return np.random.default_rng(3).normal(size=(2, 6, 5)).astype("float32") * 2


@pytest.fixture
def teacher_model(trained_toy):
    return trained_toy(depth=1)


def softmax(x):
    exponentials = np.exp(x - x.max(axis=-1, keepdims=True))
    return exponentials / exponentials.sum(axis=-1, keepdims=True)


def cross_entropy(labels, x, smoothing=0.0):
    targets = (1 - smoothing) * np.eye(5)[labels] + smoothing / 5
    return -(targets * np.log(softmax(x))).sum(axis=-1).mean()


def from_teacher(kind, teacher, student):
    """Section 5 of the paper, with a temperature of 3."""
    if kind == "hard":
        return cross_entropy(teacher.argmax(axis=-1), student)
    p, q = softmax(teacher / 3), softmax(student / 3)
    return 9 * (p * np.log(p / q)).sum(axis=-1).mean()


@pytest.mark.parametrize("kind", ["hard", "soft"])
def test_teacher_loss_equals_the_paper(logits, kind):
    teacher, student = logits
    loss = TeacherLoss(kind, 3.0)
    loss = keras.losses.deserialize(keras.losses.serialize(loss))
    np.testing.assert_allclose(loss(teacher, student), from_teacher(kind, teacher, student), rtol=1e-5)
    np.testing.assert_allclose(TeacherLoss("soft")(teacher, teacher), 0.0, atol=1e-6)
    # NaN of the teacher is no class: the gradient is NaN too, so that the optimizer skips the step and counts it.
    student = tf.constant(student)
    with tf.GradientTape() as tape:
        tape.watch(student)
        value = loss(np.full_like(teacher, np.nan), student)
    assert np.isnan(value) and np.isnan(tape.gradient(value, student)).all()


@pytest.mark.parametrize(
    "kind,alpha,mixed_labels,token",
    [("hard", 0.5, True, True), ("soft", 0.1, False, True), ("soft", 0.1, False, False)],
)
def test_training_loss_equals_the_formula(trained_toy, teacher_model, images, kind, alpha, mixed_labels, token):
    """Without a token, one head learns from labels and teacher: "usual distillation" of Table 3."""
    student = trained_toy(distillation=token, depth=1)
    model = DistillationModel(student, Teacher(teacher_model, DATA), kind, 3.0, alpha)
    model.compile("sgd", Softmax(0.1), weighted_metrics=["accuracy"], jit_compile=False)
    labels = np.eye(5, dtype="float32")[LABELS] if mixed_labels else LABELS
    loss = model.compute_loss(images, labels, model(images, training=True))
    classes, distilled = (np.array(x) for x in (student.both_heads(images) if token else [student(images)] * 2))
    expected = alpha * from_teacher(kind, np.array(teacher_model(images)), distilled)
    expected += (1 - alpha) * cross_entropy(LABELS, classes, 0.1)
    np.testing.assert_allclose(loss, expected, rtol=1e-4)
    # Evaluations use the mean of both heads, as the student does.
    mean = (classes + distilled) / 2
    np.testing.assert_allclose(model(images), mean, atol=1e-5)
    result = model.evaluate(images, LABELS, verbose=0, return_dict=True)
    assert result["loss"] == pytest.approx(cross_entropy(LABELS, mean, 0.1), rel=1e-4)
    assert result["accuracy"] == pytest.approx((mean.argmax(axis=-1) == LABELS).mean())


def test_teacher_is_neither_trained_nor_counted_nor_saved(trained_toy, teacher_model, images, tmp_path):
    student = trained_toy(distillation=True, depth=1)
    model = DistillationModel(student, Teacher(teacher_model, DATA))
    assert [v.path for v in model.variables] == [v.path for v in student.variables]
    model.compile("sgd", Softmax(), jit_compile=False)
    with tf.GradientTape() as tape:
        loss = model.compute_loss(images, LABELS, model(images, training=True))
    gradients = tape.gradient(loss, [v.value for v in (*student.trainable_weights, *teacher_model.trainable_weights)])
    count = len(student.trainable_weights)
    assert all(gradient is not None for gradient in gradients[:count])
    assert all(gradient is None for gradient in gradients[count:])
    with pytest.raises(NotImplementedError, match="student"):
        model.save(tmp_path / "all.keras")
    before = [*student.get_weights(), *teacher_model.get_weights()]
    model.train_on_batch(images, LABELS)
    after = [*student.get_weights(), *teacher_model.get_weights()]
    assert not np.array_equal(before[0], after[0])
    for value, reference in zip(after[len(student.weights) :], before[len(student.weights) :], strict=True):
        np.testing.assert_array_equal(value, reference)


def test_teacher_runs_in_inference_mode(images):
    teacher = keras.Sequential([keras.Input((16, 16, 3)), keras.layers.Flatten(), keras.layers.Dropout(0.9)])
    teacher.add(keras.layers.BatchNormalization())
    teacher.add(keras.layers.Dense(5))
    wrapped = Teacher(teacher, DATA)
    np.testing.assert_allclose(wrapped(images), teacher(images, training=False), atol=1e-6)
    assert not np.any(teacher.layers[2].moving_mean)


@pytest.mark.slow
def test_replicas_and_accumulation_equal_one_device(trained_toy, teacher_model, images, tmp_path, logical_cpus):
    """With a SavedModel as the teacher, too."""
    logical_cpus(2)
    teacher_model.save(tmp_path / "teacher.keras")
    write_saved_model(teacher_model, tmp_path / "saved")
    start, results = trained_toy(distillation=True, depth=1).get_weights(), []
    batch = np.concatenate([images, -images, images[:2] / 2])  # (8, H, W, 3)
    batches = tf.data.Dataset.from_tensor_slices((batch, np.arange(8) % 5)).batch(8, drop_remainder=True)
    for strategy, parts, teacher in (("one-device", 1, "teacher.keras"), ("mirrored", 2, "saved")):
        with choose_strategy(strategy).scope():
            student = trained_toy(distillation=True, depth=1)
            student.set_weights(start)
            model = DistillationModel(student, load_teacher(tmp_path / teacher, DATA), "soft")
            model.compile(keras.optimizers.SGD(0.1), Softmax(), metrics=["accuracy"], jit_compile=False)
        accumulate_gradients(model, parts)
        model.fit(batches.repeat(3), shuffle=False, verbose=0)
        results.append(student.get_weights())
    for one, two in zip(*results, strict=True):
        np.testing.assert_allclose(one, two, atol=1e-5)
    assert not np.allclose(results[0][0], start[0])


@pytest.mark.slow
def test_teachers_of_every_kind_return_logits_of_images_in_their_range(trained_toy, images, tmp_path):
    """A teacher trained with another mean and std gets the images in its own range."""
    mean, std = (0.4, 0.5, 0.6), (0.2, 0.25, 0.3)
    model = trained_toy(preprocessing=keras_vit.Preprocessing(16, mean=mean, std=std), depth=1)
    scaled = ((images + 1) / 2 - mean) / std
    expected = model(scaled)
    model.save(tmp_path / "teacher.keras")
    save(model, tmp_path / "folder")
    write_saved_model(model, tmp_path / "saved")
    for teacher in (
        Teacher(model, DATA),
        *(load_teacher(tmp_path / name, DATA) for name in ("teacher.keras", "folder", "saved")),
    ):
        assert teacher.num_classes == 5 and not teacher.returns_probabilities
        np.testing.assert_allclose(teacher(images), expected, atol=1e-5)
    same_range = Teacher(model, Data(image_size=16, mean=mean, std=std))
    np.testing.assert_allclose(same_range(scaled), expected, atol=1e-5)
    # Logits of probabilities are equal up to a constant per image, which softmax cancels.
    probable = Teacher(keras.Sequential([keras.Input((16, 16, 3)), model, keras.layers.Softmax()]), DATA)
    assert probable.returns_probabilities
    outputs, unscaled = np.array(probable(images)), np.array(model(images))
    np.testing.assert_allclose(softmax(outputs / 3), softmax(unscaled / 3), atol=1e-5)


def test_teacher_can_be_traced_for_a_tpu(teacher_model):
    """Without a TPU, running the traced graph fails."""
    with simulated_tpu().scope(), pytest.raises(ValueError, match="No OpKernel .* 'TPUReplicatedInput'"):
        Teacher(teacher_model, DATA)


def test_incompatible_teachers_and_students_raise(toy, teacher_model, tmp_path):
    def check(message, function, *arguments, error=ValueError, **options):
        with pytest.raises(error, match=message):
            function(*arguments, **options)

    teacher = Teacher(teacher_model, DATA)
    check(r"Received: \(2, 17, 5\)", Teacher, toy(pooling="none"), DATA)
    check(r"\(B, C\)", Teacher, toy(num_classes=0, pooling="none"), DATA)
    check(r"\(2, 32, 32, 3\)[^\n\x1b]*resized[^\n\x1b]*\Z", Teacher, teacher_model, replace(DATA, image_size=32))
    check("5 classes, the student 7", DistillationModel, toy(num_classes=7, distillation=True), teacher)
    check("5 classes, the student 0", DistillationModel, toy(num_classes=0), teacher)
    check("gone.keras", load_teacher, tmp_path / "gone.keras", DATA, error=FileNotFoundError)
    tf.saved_model.save(tf.Module(), str(tmp_path / "empty"))
    check("signatures none", load_teacher, tmp_path / "empty", DATA)
    teacher_model.save(tmp_path / "teacher.keras")
    for has_token in (True, False):
        recipe = Distillation(data=DATA, teacher=str(tmp_path / "teacher.keras"), distillation_token=not has_token)
        check(f"distillation_token={has_token}", build_distillation, toy(distillation=has_token), recipe)
    bit = BiT(stages=(1,), width_factor=1, image_size=32, num_classes=3)
    recipe = Distillation(data=DATA, teacher="any", distillation_token=False)
    check("a BiT", build_distillation, bit, recipe)
