"""DeiT's distillation against its formulas, and training with teachers of every kind."""

from dataclasses import replace

import keras
import numpy as np
import pytest
import tensorflow as tf
from simulated_tpu import simulated_tpu
from sklearn.datasets import load_digits

import keras_vit
from keras_vit import BiT
from keras_vit.export import write_saved_model
from keras_vit.recipes.distillation.model import DistillationModel, TeacherLoss, build_distillation
from keras_vit.recipes.distillation.teacher import Teacher, load_teacher
from keras_vit.recipes.distributed.strategy import choose_strategy
from keras_vit.recipes.recipe import Data, Distillation
from keras_vit.recipes.training.accumulation import accumulate_gradients
from keras_vit.recipes.training.losses import Softmax
from keras_vit.weights import save

DATA = Data(image_size=16)


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


def test_teacher_loss_equals_the_paper(logits):
    teacher, student = logits
    hard = cross_entropy(teacher.argmax(axis=-1), student)
    np.testing.assert_allclose(TeacherLoss("hard")(teacher, student), hard, rtol=1e-5)
    p, q = softmax(teacher / 3.0), softmax(student / 3.0)
    soft = 9 * (p * np.log(p / q)).sum(axis=-1).mean()
    np.testing.assert_allclose(TeacherLoss("soft", 3.0)(teacher, student), soft, rtol=1e-5)
    np.testing.assert_allclose(TeacherLoss("soft")(teacher, teacher), 0.0, atol=1e-6)
    with pytest.raises(ValueError, match="'hard' or 'soft'"):
        TeacherLoss("firm")
    with pytest.raises(ValueError, match="temperature"):
        TeacherLoss("soft", 0.0)


@pytest.mark.parametrize("kind", ["hard", "soft"])
def test_nan_of_the_teacher_is_no_class(logits, kind):
    """The gradient is NaN too, so that the optimizer skips the step and counts it."""
    teacher, student = np.full_like(logits[0], np.nan), tf.constant(logits[1])
    with tf.GradientTape() as tape:
        tape.watch(student)
        loss = TeacherLoss(kind)(teacher, student)
    assert np.isnan(loss) and np.isnan(tape.gradient(loss, student)).all()


@pytest.mark.slow
@pytest.mark.parametrize("kind,alpha", [("hard", 0.5), ("soft", 0.1)])
@pytest.mark.parametrize("mixed_labels", [False, True])
def test_training_loss_equals_the_formula(trained_toy, teacher_model, images, kind, alpha, mixed_labels):
    student = trained_toy(distillation=True)
    model = DistillationModel(student, Teacher(teacher_model, DATA), kind, 3.0, alpha)
    model.compile("sgd", Softmax(0.1), jit_compile=False)
    labels = np.array([4, 0, 2])
    given = np.eye(5, dtype="float32")[labels] if mixed_labels else labels
    loss = model.compute_loss(images, given, model(images, training=True))
    classes, distilled = (np.array(x) for x in student.both_heads(images))
    teacher_logits = np.array(teacher_model(images))
    if kind == "hard":
        from_teacher = cross_entropy(teacher_logits.argmax(axis=-1), distilled)
    else:
        p, q = softmax(teacher_logits / 3), softmax(distilled / 3)
        from_teacher = 9 * (p * np.log(p / q)).sum(axis=-1).mean()
    expected = (1 - alpha) * cross_entropy(labels, classes, 0.1) + alpha * from_teacher
    np.testing.assert_allclose(loss, expected, rtol=1e-4)
    # Evaluations use the mean of both heads, as the student does.
    np.testing.assert_allclose(model(images), (classes + distilled) / 2, atol=1e-5)
    mean = model.evaluate(images, labels, verbose=0)
    np.testing.assert_allclose(mean, cross_entropy(labels, (classes + distilled) / 2, 0.1), rtol=1e-4)


def test_without_a_token_the_class_head_learns_from_labels_and_teacher(trained_toy, teacher_model, images):
    """Equation 2 of the paper on one head: "usual distillation" of its table 3."""
    student, labels = trained_toy(), np.array([4, 0, 2])
    model = DistillationModel(student, Teacher(teacher_model, DATA), "soft", 3.0, 0.1)
    model.compile("sgd", Softmax(0.1), weighted_metrics=["accuracy"], jit_compile=False)
    logits, from_teacher = np.array(student(images)), np.array(teacher_model(images))
    p, q = softmax(from_teacher / 3), softmax(logits / 3)
    expected = 0.9 * cross_entropy(labels, logits, 0.1) + 0.1 * 9 * (p * np.log(p / q)).sum(axis=-1).mean()
    np.testing.assert_allclose(model.compute_loss(images, labels, model(images, training=True)), expected, rtol=1e-4)
    np.testing.assert_allclose(model(images), logits, atol=1e-6)
    result = model.evaluate(images, labels, verbose=0, return_dict=True)
    np.testing.assert_allclose(result["loss"], cross_entropy(labels, logits, 0.1), rtol=1e-4)
    assert result["accuracy"] == pytest.approx((logits.argmax(axis=-1) == labels).mean())


@pytest.mark.parametrize("has_token", [True, False])
def test_student_and_recipe_must_agree_on_the_token(has_token, toy, teacher_model, tmp_path):
    teacher_model.save(tmp_path / "teacher.keras")
    recipe = Distillation(data=DATA, teacher=str(tmp_path / "teacher.keras"), distillation_token=not has_token)
    with pytest.raises(ValueError, match=f"Use other weights, or set distillation_token={has_token}"):
        build_distillation(toy(distillation=has_token), recipe)


def test_student_must_be_a_vision_transformer():
    student = BiT(stages=(1,), width_factor=1, image_size=32, num_classes=3)
    with pytest.raises(ValueError, match="A Distillation recipe trains a Vision Transformer. Received: .*, a BiT"):
        build_distillation(student, Distillation(data=DATA, teacher="any", distillation_token=False))


@pytest.mark.slow
def test_teacher_is_neither_trained_nor_counted_nor_saved(trained_toy, teacher_model, images):
    student = trained_toy(distillation=True)
    model = DistillationModel(student, Teacher(teacher_model, DATA))
    assert [v.path for v in model.variables] == [v.path for v in student.variables]
    model.compile("sgd", Softmax(), jit_compile=False)
    with tf.GradientTape() as tape:
        loss = model.compute_loss(images, np.array([0, 1, 2]), model(images, training=True))
    gradients = tape.gradient(loss, [v.value for v in (*student.trainable_weights, *teacher_model.trainable_weights)])
    count = len(student.trainable_weights)
    assert all(gradient is not None for gradient in gradients[:count])
    assert all(gradient is None for gradient in gradients[count:])
    before = teacher_model.get_weights()
    model.fit(images, np.array([0, 1, 2]), epochs=2, verbose=0)
    for one, other in zip(before, teacher_model.get_weights()):
        np.testing.assert_array_equal(one, other)


def test_teacher_runs_in_inference_mode(images):
    teacher = keras.Sequential([keras.Input((16, 16, 3)), keras.layers.Flatten(), keras.layers.Dropout(0.9)])
    teacher.add(keras.layers.BatchNormalization())
    teacher.add(keras.layers.Dense(5))
    wrapped = Teacher(teacher, DATA)
    np.testing.assert_allclose(wrapped(images), teacher(images, training=False), atol=1e-6)
    assert not np.any(teacher.layers[2].moving_mean)


@pytest.fixture(scope="module")
def digits(tmp_path_factory):
    """Digits (400, 8, 8, 3) in [-1, 1], labels, and the file of a teacher that predicts (label - 1) % 10."""
    bunch = load_digits()
    pixels = np.repeat(bunch.images[:400, ..., None] / 8 - 1, 3, axis=-1).astype("float32")  # (400, 8, 8, 3)
    features = np.append(pixels.reshape(400, -1), np.ones((400, 1)), axis=1)
    wanted = np.eye(10)[(bunch.target[:400] - 1) % 10] * 10
    solution = np.linalg.lstsq(features, wanted, rcond=None)[0]
    teacher = keras.Sequential([keras.Input((8, 8, 3)), keras.layers.Flatten(), keras.layers.Dense(10)])
    teacher.set_weights([solution[:-1], solution[-1]])
    file = tmp_path_factory.mktemp("teacher") / "teacher.keras"
    teacher.save(file)
    return pixels, bunch.target[:400], file


@pytest.mark.slow
def test_class_head_learns_labels_and_distillation_head_the_teacher(toy, digits, tmp_path):
    pixels, labels, file = digits
    data = Data(image_size=8)
    recipe = Distillation(data=data, teacher=str(file), distillation="hard", distillation_alpha=0.5)
    changes = {"image_size": 8, "patch_size": 2, "depth": 1, "width": 24, "num_classes": 10}
    student = toy(**changes, distillation=True, dtype="mixed_bfloat16")
    model = build_distillation(student, recipe)
    teacher = np.argmax(model.teacher(pixels), axis=-1)
    assert (teacher == (labels - 1) % 10).mean() > 0.95

    def agreement():
        classes, distilled = (np.argmax(logits, axis=-1) for logits in student.both_heads(pixels))
        return (classes == labels).mean(), (distilled == teacher).mean()

    assert max(agreement()) < 0.5
    model.compile(keras.optimizers.Adam(8e-3), Softmax(0.1), weighted_metrics=["accuracy"], jit_compile=False)
    model.fit(pixels, labels, batch_size=50, epochs=15, verbose=0)
    assert min(agreement()) > 0.9
    with pytest.raises(NotImplementedError, match="Save the student"):
        model.save(tmp_path / "all.keras")
    student.save(tmp_path / "student.keras")
    loaded = keras.saving.load_model(tmp_path / "student.keras")
    np.testing.assert_allclose(loaded(pixels[:4]), student(pixels[:4]), atol=1e-6)
    mean = model.evaluate(pixels, labels, verbose=0, return_dict=True)["accuracy"]
    expected = (np.argmax(student(pixels), axis=-1) == labels).mean()
    assert mean == pytest.approx(expected, abs=2.5 / len(labels))  # bfloat16 rounds otherwise in a graph: two images


@pytest.mark.slow
def test_replicas_and_accumulation_equal_one_device(trained_toy, teacher_model, images, tmp_path):
    teacher_model.save(tmp_path / "teacher.keras")
    start, results = trained_toy(distillation=True, depth=1).get_weights(), []
    for strategy, parts in (("one-device", 1), ("mirrored", 2)):
        with choose_strategy(strategy).scope():
            student = trained_toy(distillation=True, depth=1)
            student.set_weights(start)
            model = DistillationModel(student, load_teacher(tmp_path / "teacher.keras", DATA), "soft")
            model.compile(keras.optimizers.SGD(0.1), Softmax(), metrics=["accuracy"], jit_compile=False)
        accumulate_gradients(model, parts)
        batch = np.concatenate([images, -images, images[:2] / 2])  # (8, H, W, 3)
        batches = tf.data.Dataset.from_tensor_slices((batch, np.arange(8) % 5)).batch(8, drop_remainder=True)
        model.fit(batches.repeat(3), shuffle=False, verbose=0)
        results.append(student.get_weights())
    for one, two in zip(*results):
        np.testing.assert_allclose(one, two, atol=1e-5)


def test_images_are_scaled_to_the_range_of_the_teacher(trained_toy, images):
    """A teacher trained with another mean and std gets the images in its own range."""
    mean, std = (0.4, 0.5, 0.6), (0.2, 0.25, 0.3)
    preprocessing = keras_vit.Preprocessing(16, mean=mean, std=std)
    model = trained_toy(preprocessing=preprocessing)
    pixels = (images + 1) / 2
    np.testing.assert_allclose(Teacher(model, DATA)(images), model((pixels - mean) / std), atol=1e-5)
    other = Data(image_size=16, mean=mean, std=std)
    np.testing.assert_allclose(Teacher(model, other)((pixels - mean) / std), model((pixels - mean) / std), atol=1e-5)


@pytest.mark.slow
def test_teachers_of_every_kind_return_logits(trained_toy, images, tmp_path):
    model = trained_toy(preprocessing=keras_vit.Preprocessing(16, mean=(0.4,) * 3, std=(0.2,) * 3))
    expected = np.array(Teacher(model, DATA)(images))
    model.save(tmp_path / "teacher.keras")
    save(model, tmp_path / "folder")
    write_saved_model(model, tmp_path / "saved")
    probable = keras.Sequential([keras.Input((16, 16, 3)), model, keras.layers.Softmax()])
    np.testing.assert_allclose(load_teacher(tmp_path / "teacher.keras", DATA)(images), expected, atol=1e-5)
    np.testing.assert_allclose(load_teacher(tmp_path / "folder", DATA)(images), expected, atol=1e-5)
    exported = load_teacher(tmp_path / "saved", DATA)
    assert exported.num_classes == 5 and not exported.returns_probabilities
    np.testing.assert_allclose(exported(images), expected, atol=1e-5)
    # Logits of probabilities are equal up to a constant per image, which softmax cancels.
    outputs, wanted = Teacher(probable, DATA)(images), model(images)
    np.testing.assert_allclose(softmax(np.array(outputs) / 3), softmax(np.array(wanted) / 3), atol=1e-5)


@pytest.mark.slow
def test_saved_model_as_teacher_of_two_replicas(trained_toy, images, tmp_path):
    write_saved_model(trained_toy(depth=1), tmp_path / "saved")
    strategy = choose_strategy("mirrored")
    with strategy.scope():
        student = trained_toy(distillation=True, depth=1)
        distillation = DistillationModel(student, load_teacher(tmp_path / "saved", DATA))
        distillation.compile(keras.optimizers.SGD(0.1), Softmax(), jit_compile=False)
    history = distillation.fit(images[:2], np.array([1, 2]), batch_size=2, epochs=2, verbose=0).history
    assert np.all(np.isfinite(history["loss"])) and history["loss"][1] < history["loss"][0]


def test_teacher_can_be_traced_for_a_tpu(teacher_model):
    """Without a TPU, running the traced graph fails."""
    with (
        simulated_tpu().scope(),
        pytest.raises(ValueError, match="fails on the student's images.*No OpKernel .* 'TPUReplicatedInput'"),
    ):
        Teacher(teacher_model, DATA)


def test_teacher_loss_serialization():
    loss = TeacherLoss("soft", 2.0)
    again = keras.losses.deserialize(keras.losses.serialize(loss))
    assert (again.distillation, again.temperature) == ("soft", 2.0)


@pytest.mark.slow
def test_incompatible_teachers_and_students_raise(toy, tmp_path):
    teacher = Teacher(toy(), DATA)
    with pytest.raises(ValueError, match=r"must return logits or probabilities, \(B, C\). Received: \(2, 17, 5\)"):
        Teacher(toy(pooling="none"), DATA)
    with pytest.raises(ValueError, match="The teacher has 5 classes, the student 7"):
        DistillationModel(toy(num_classes=7, distillation=True), teacher)
    with pytest.raises(ValueError, match="has no head"):
        DistillationModel(toy(num_classes=0), teacher)
    with pytest.raises(ValueError, match=r"`alpha` .* must be in \[0, 1\]"):
        DistillationModel(toy(distillation=True), teacher, alpha=1.5)
    with pytest.raises(ValueError, match=r"(?s)fails on the student's images of shape \(2, 32, 32, 3\).*resized"):
        Teacher(toy(), replace(DATA, image_size=32))
    with pytest.raises(ValueError, match=r"logits or probabilities, \(B, C\)"):
        Teacher(toy(num_classes=0, pooling="none"), DATA)
    with pytest.raises(FileNotFoundError, match="teacher .*gone.keras does not exist"):
        load_teacher(tmp_path / "gone.keras", DATA)
    tf.saved_model.save(tf.Module(), str(tmp_path / "empty"))
    with pytest.raises(ValueError, match="has the signatures none"):
        load_teacher(tmp_path / "empty", DATA)
