"""Preflight: what a training or inference step costs on a TPU, by the TPU's own compiler, without a TPU."""

from keras_vit.recipes.preflight.chips import CHIPS
from keras_vit.recipes.preflight.compile_steps import preflight
from keras_vit.recipes.preflight.report import Report, StepReport

__all__ = ["CHIPS", "Report", "StepReport", "preflight"]
