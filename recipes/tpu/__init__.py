"""Preflight: what a training or inference step costs on a TPU, by the TPU's own compiler, without a TPU."""

from keras_vit.recipes.tpu.chips import CHIPS
from keras_vit.recipes.tpu.preflight import preflight
from keras_vit.recipes.tpu.report import Report, StepReport

__all__ = ["CHIPS", "Report", "StepReport", "preflight"]
