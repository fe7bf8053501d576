"""Distillation with or without a token of its own (DeiT, arXiv 2012.12877, section 4). B batch, C classes."""

import keras
from keras import ops

from keras_vit import VisionTransformer
from keras_vit.recipes.distillation.teacher import Teacher, load_teacher
from keras_vit.recipes.recipe import Distillation


@keras.saving.register_keras_serializable(package="keras_vit")
class TeacherLoss(keras.losses.Loss):
    """Loss of a student's logits (B, C) against a teacher's logits (B, C); one value per image, then the mean.

    "hard": cross-entropy with the teacher's class, argmax z_t (equation 3). "soft": T^2 KL(softmax(z_t / T) ||
    softmax(z_s / T)), summed over the classes (equation 2); the authors' code also divides by C (facebookresearch/deit,
    losses.py).
    """

    def __init__(self, distillation="hard", temperature=3.0, name="teacher", **kwargs):
        super().__init__(name=name, **kwargs)
        self.distillation = distillation
        self.temperature = temperature

    def call(self, y_true, y_pred):
        if self.distillation == "hard":
            chosen = ops.one_hot(ops.argmax(y_true, axis=-1), y_pred.shape[-1], dtype=y_pred.dtype)  # (B, C)
            # The largest of NaN is the first class: without this, the student would learn it.
            chosen = ops.where(ops.isnan(y_true), ops.cast(y_true, chosen.dtype), chosen)  # (B, C)
            return -ops.sum(chosen * ops.log_softmax(y_pred, axis=-1), axis=-1)  # (B,)
        teacher, student = (ops.log_softmax(logits / self.temperature, axis=-1) for logits in (y_true, y_pred))
        return self.temperature**2 * ops.sum(ops.exp(teacher) * (teacher - student), axis=-1)  # (B,)

    def get_config(self):
        return {**super().get_config(), "distillation": self.distillation, "temperature": self.temperature}


class DistillationModel(keras.Model):
    """Trains both heads of a student: (1 - alpha) loss(class head, label) + alpha TeacherLoss(distillation head).

    The class head of a student without a distillation head learns from both ("usual distillation" in table 3 of the
    paper). The loss of labels is that of `compile`, including label smoothing, for labels (B,) or (B, C). The teacher
    gets the student's images, after augmentation. Metrics, evaluations and predictions use the mean of both heads,
    which is the student's own output. The result of the training is `student`; save that.

    Input: (B, H, W, 3) float. Output: logits (B, C); in training, the pair that labels and teacher train.

    Args:
        student: A `VisionTransformer` with a head, usually with distillation=True.
        alpha: Weight of the teacher's loss, in [0, 1]. DeiT uses 0.5 for "hard" and 0.1 for "soft".
    """

    def __init__(self, student, teacher: Teacher, distillation="hard", temperature=3.0, alpha=0.5, **kwargs):
        super().__init__(dtype=student.dtype_policy, **kwargs)
        if teacher.num_classes != student.num_classes:
            raise ValueError(
                f"The teacher has {teacher.num_classes} classes, the student {student.num_classes}. Use a teacher "
                "trained on the same classes."
            )
        self.student = student
        self.teacher = teacher
        self.teacher_loss = TeacherLoss(distillation, temperature)
        self.alpha = alpha
        self.build()

    def build(self, input_shape=None):
        """Nothing to build: the student already has its weights."""

    def call(self, images, training=None):
        if not training:
            return self.student(images, training=False)
        if self.student.config.distillation:
            return self.student.both_heads(images, training=True)
        logits = self.student(images, training=True)
        return logits, logits

    def compute_loss(self, x=None, y=None, y_pred=None, sample_weight=None, training=True):
        if not isinstance(y_pred, tuple):
            return super().compute_loss(x, y, y_pred, sample_weight, training)
        classes, distilled = y_pred
        labels_loss = super().compute_loss(x, y, classes, sample_weight, training)
        teacher_loss = self.teacher_loss(self.teacher(x), distilled, sample_weight)
        return (1.0 - self.alpha) * labels_loss + self.alpha * teacher_loss

    def compute_metrics(self, x, y, y_pred, sample_weight=None):
        mean = (y_pred[0] + y_pred[1]) / 2 if isinstance(y_pred, tuple) else y_pred
        return super().compute_metrics(x, y, mean, sample_weight)

    def get_config(self):
        raise NotImplementedError("The teacher is not saved. Save the student: model.student.save(...).")


def build_distillation(student, recipe: Distillation) -> DistillationModel:
    """Loads the recipe's teacher and builds the model that trains the student. Call it in the strategy's scope."""
    if not isinstance(student, VisionTransformer):
        raise ValueError(
            f"A Distillation recipe trains a Vision Transformer. Received: {student.name}, a {type(student).__name__}. "
            "Use weights of a Vision Transformer."
        )
    has_token = bool(student.config.distillation)
    if has_token != recipe.distillation_token:
        raise ValueError(
            f"The model to train has {'a' if has_token else 'no'} distillation token. Received: distillation_token="
            f"{recipe.distillation_token}. Use other weights, or set distillation_token={has_token}."
        )
    teacher = load_teacher(recipe.teacher, recipe.data)
    return DistillationModel(student, teacher, recipe.distillation, recipe.temperature, recipe.distillation_alpha)
