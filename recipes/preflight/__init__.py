"""Memory and cost of a training or inference step on a TPU, from the TPU's own compiler; no TPU is needed.

    report = preflight(recipe_or_model, "v5e:2x4")

`run_preflight` is the entry point; `chips` and `dataset_sizes` hold known hardware and data. `step_programs` traces the
steps of a recipe or model (`step_functions`) and lowers them to HLO (`lowering`). `compile_steps` compiles them
(`compiler_process` runs `compiler`, `cache` stores the results) and reads the results (`live_tensors`). `largest_batch`
and `tiling` search and advise; `report` holds and prints the figures.
"""

from keras_vit.recipes.preflight.chips import CHIPS
from keras_vit.recipes.preflight.report import Report, StepReport
from keras_vit.recipes.preflight.run_preflight import preflight

__all__ = ["CHIPS", "Report", "StepReport", "preflight"]
