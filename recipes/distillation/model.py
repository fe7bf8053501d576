"""DeiT's distillation (arXiv 2012.12877, section 4): a token and a head learn from a teacher. B batch, C classes."""

import keras
from keras import ops

from keras_vit.recipes.distillation.teacher import Teacher, load_teacher
from keras_vit.recipes.recipe import Distillation


@keras.saving.register_keras_serializable(package="keras_vit")
class TeacherLoss(keras.losses.Loss):
    """How far a student's answers are from the teacher's, both logits (B, C); one value an image, then the mean.

    "hard": cross-entropy with the teacher's choice, argmax z_t (equation 3). "soft": T^2 KL(softmax(z_t / T) ||
    softmax(z_s / T)), summed over the classes (equation 2); the authors' code divides it by C besides
    (facebookresearch/deit, losses.py).

    Args:
        distillation: "hard" or "soft".
        temperature: T, of "soft".

    Raises:
        ValueError: An unknown kind, or a temperature that is not above 0.
    """

    def __init__(self, distillation="hard", temperature=3.0, name="teacher", **kwargs):
        if distillation not in ("hard", "soft"):
            raise ValueError(f"`distillation` must be 'hard' or 'soft'. Received: {distillation!r}")
        if temperature <= 0:
            raise ValueError(f"`temperature` must be above 0. Received: {temperature}")
        super().__init__(name=name, **kwargs)
        self.distillation = distillation
        self.temperature = temperature

    def call(self, y_true, y_pred):
        if self.distillation == "hard":
            chosen = ops.one_hot(ops.argmax(y_true, axis=-1), y_pred.shape[-1], dtype=y_pred.dtype)  # (B, C)
            return -ops.sum(chosen * ops.log_softmax(y_pred, axis=-1), axis=-1)  # (B,)
        teacher, student = (ops.log_softmax(logits / self.temperature, axis=-1) for logits in (y_true, y_pred))
        return self.temperature**2 * ops.sum(ops.exp(teacher) * (teacher - student), axis=-1)  # (B,)

    def get_config(self):
        return {**super().get_config(), "distillation": self.distillation, "temperature": self.temperature}


class DistillationModel(keras.Model):
    """Trains both heads of a student: (1 - share) loss(class head, label) + share TeacherLoss(distillation head).

    The loss of labels is the one of `compile`, with its label smoothing, for labels (B,) or (B, C). The teacher sees
    the images that the student sees, after augmentation. Metrics, evaluations and predictions are of the mean of both
    heads, which is what the student itself gives. The result is `student`; save that.

    Input: (B, H, W, 3) float. Output: logits (B, C), in training a pair of them, of the class and distillation heads.

    Args:
        student: A `VisionTransformer` with distillation=True and a head.
        teacher: See `load_teacher`.
        distillation, temperature: See `TeacherLoss`.
        share: Of the teacher in the loss, in [0, 1]. DeiT has 0.5 for "hard" and 0.1 for "soft".

    Raises:
        ValueError: The student has no two heads, the teacher knows another number of classes, or a value is out of
            range.
    """

    def __init__(self, student, teacher: Teacher, distillation="hard", temperature=3.0, share=0.5, **kwargs):
        super().__init__(dtype=student.dtype_policy, **kwargs)
        if getattr(student, "head_distillation", None) is None:
            raise ValueError(
                f"{student.name} has no distillation head. Make the student with distillation=True and num_classes."
            )
        if teacher.num_classes != student.num_classes:
            raise ValueError(
                f"The teacher knows {teacher.num_classes} classes, the student {student.num_classes}. Take a teacher "
                "that was trained on the same classes."
            )
        if not 0.0 <= share <= 1.0:
            raise ValueError(f"The teacher's share of the loss must be in [0, 1]. Received: {share}")
        self.student = student
        self.teacher = teacher
        self.teacher_loss = TeacherLoss(distillation, temperature)
        self.share = share
        self.build()

    def build(self, input_shape=None):
        """The student has its weights already."""

    def call(self, images, training=None):
        return self.student.both_heads(images, training=True) if training else self.student(images, training=False)

    def compute_loss(self, x=None, y=None, y_pred=None, sample_weight=None, training=True):
        if not isinstance(y_pred, tuple):
            return super().compute_loss(x, y, y_pred, sample_weight, training)
        classes, distilled = y_pred
        labels_loss = super().compute_loss(x, y, classes, sample_weight, training)
        teacher_loss = self.teacher_loss(self.teacher(x), distilled, sample_weight)
        return (1.0 - self.share) * labels_loss + self.share * teacher_loss

    def compute_metrics(self, x, y, y_pred, sample_weight=None):
        mean = (y_pred[0] + y_pred[1]) / 2 if isinstance(y_pred, tuple) else y_pred
        return super().compute_metrics(x, y, mean, sample_weight)

    def get_config(self):
        raise NotImplementedError("A teacher is not saved with its student. Save the student: model.student.save(...).")


def build_distillation(student, recipe: Distillation) -> DistillationModel:
    """Opens the recipe's teacher and puts the student under it; call it inside the strategy's scope."""
    teacher = load_teacher(recipe.teacher, recipe.data)
    return DistillationModel(student, teacher, recipe.distillation, recipe.temperature, recipe.distillation_alpha)
