"""Memory and cost of a training or inference step on a TPU, from the TPU's own compiler; no TPU is needed.

    report = preflight(recipe_or_model, "v5e:2x4")

`run_preflight` is the entry point, which also searches for the largest batch. `step_programs` describes the steps of a
recipe or a model, `lowering` lowers them to HLO. `compile_steps` compiles them in a process of `compiler`, stores the
results and reads them (`live_tensors`). `report` has the known hardware and holds and prints the figures.
"""

from keras_vit.recipes.preflight.report import CHIPS, Report, StepReport
from keras_vit.recipes.preflight.run_preflight import preflight

__all__ = ["CHIPS", "Report", "StepReport", "preflight"]
