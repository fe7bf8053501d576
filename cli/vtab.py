"""`keras-vit vtab`: a checkpoint on the 19 tasks of VTAB-1k."""

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import tyro

from keras_vit_cli.given_paths import check_weights
from keras_vit_cli.preprocessing_flags import AS_STATED, Preparation


@dataclass(frozen=True)
class Vtab:
    """Fine-tune a checkpoint on each task of VTAB-1k by the paper's recipe, and print its Table 9.

    Finished tasks in the folder are not run again, interrupted ones are resumed.

    Args:
        weights: File, folder or name, as for `keras_vit.load`.
        folder: Folder of the runs and of vtab.json.
        data_dir: Folder of prepared datasets; by default that of TensorFlow Datasets.
        tasks: Run only these tasks; the means require all of them.
        preparation: Mean and standard deviation of the pixels; the recipe sets the rest.
    """

    weights: Annotated[str, tyro.conf.Positional, tyro.conf.arg(metavar="WEIGHTS")]
    folder: Path = Path("runs/vtab")
    data_dir: str | None = None
    tasks: tuple[str, ...] = ()
    preparation: Preparation = AS_STATED

    def run(self):
        """Trains, and prints the table."""
        fields = self.preparation.fields() or {}
        if other := sorted(fields.keys() - {"mean", "std"}):
            raise ValueError(f"VTAB's recipe sets {', '.join(other)}. Expected --preprocessing imagenet or half.")
        check_weights(self.weights)
        from keras_vit.recipes.configs.vtab import TASKS
        from keras_vit.recipes.evaluation.vtab import run_vtab

        result = run_vtab(self.weights, self.folder, data_dir=self.data_dir, tasks=self.tasks, **fields)
        print("\n| task | group | top-1, % |\n|---|---|---|")
        for name, top1 in result.tasks.items():
            print(f"| {TASKS[name].title} | {TASKS[name].group} | {100 * top1:.1f} |")
        for group, mean in result.means.items():
            print(f"| **mean** | {group} | **{100 * mean:.2f}** |")
