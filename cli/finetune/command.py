"""`keras-vit finetune`: from a folder of images to a classifier, without any other option."""

import shlex
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Annotated

import tyro

from keras_vit_cli.default_weights import OFFLINE, load_default
from keras_vit_cli.output_folder import check_replaceable
from keras_vit_cli.preprocessing_flags import AS_STATED, Preparation

OFFLINE_NOTE = (
    f"Starting from {OFFLINE}, a small model of 32 x 32 pixels in the package, with which details are lost.\nFor other "
    "weights add --weights FILE"
)
RECIPE_FILE = "recipe.json"  # as keras_vit.recipes.checkpoints.run_folder, which imports TensorFlow


@dataclass(frozen=True)
class Finetune:
    """Fine-tune a model on a folder of 30 to 5,000 images, evaluate it, and export it for phones.

    The settings follow from the number of images and the speed of this machine. They are printed as the command of
    `keras-vit train` that repeats the training. The same command again resumes an interrupted run.

    Args:
        folder: Images in a folder for each class, /folder/<class>/<image>: a fifth of each class is held out for
            the evaluation, and nothing is moved. Or with splits, /folder/train/<class>/<image> and /folder/test/...
        weights: File, folder or name, as for `keras_vit.load`. Default: as `keras-vit classify`, AugReg's S/16,
            downloaded once (0.09 GB), or, where no download is possible, the small model in the package.
        output: Folder for the model and its files. Default: runs/ and the name of the folder.
        preparation: How images are prepared, if it is not as the weights state.
    """

    folder: Annotated[Path, tyro.conf.Positional, tyro.conf.arg(metavar="FOLDER")]
    weights: str | None = None
    output: Path | None = None
    preparation: Preparation = AS_STATED

    def run(self):
        """Trains, evaluates, exports, and prints what to do next."""
        from keras_vit.recipes.check_all import check_all
        from keras_vit.recipes.run_recipe import run_unless_finished
        from keras_vit_cli.finetune.plan import choose_recipe
        from keras_vit_cli.finetune.result import export_checked, print_result

        output = self.output or Path("runs") / self.folder.absolute().name
        recipe = self._previous_recipe(output) if output.is_dir() else None
        if recipe is None:
            checks = [self._open, lambda: check_replaceable(output, RECIPE_FILE)]
            if self.weights:  # otherwise there may be a download, which has to wait for the folder
                checks.append(self._load)
            images, _, *loaded = check_all(*checks)
            weights, model = loaded[0] if loaded else self._load()
            recipe = choose_recipe(images, weights, model, output)
            del model
        metrics = run_unless_finished(replace(recipe, run=replace(recipe.run, resume=True)))
        file = export_checked(recipe, output)
        print_result(recipe, output, file, metrics)

    def _previous_recipe(self, output: Path):
        """The recipe of the interrupted or finished run in the output folder; None if there is none.

        Raises:
            ValueError: That run is of another folder or other weights, or it is finished and the folder has changed.
        """
        from keras_vit.recipes.checkpoints.run_folder import METRICS, has_run
        from keras_vit.recipes.checkpoints.run_identity import check_unchanged
        from keras_vit.recipes.data import open_dataset
        from keras_vit.recipes.recipe import Supervised
        from keras_vit.recipes.recipe_file import read_recipe

        if not has_run(output):
            return None
        recipe, another = read_recipe(output / RECIPE_FILE), f"--output {shlex.quote(f'{output}-2')}"
        images = Path(recipe.data.dataset.removeprefix("folder:")).absolute()
        weights = recipe.weights if isinstance(recipe, Supervised) else "no weights"
        if self.folder.absolute() not in (images, *images.parents) or self.weights not in (None, weights):
            raise ValueError(
                f"{output} has a run of {recipe.data.dataset} from {weights}. Received: {self.folder}"
                f"{f' and --weights {self.weights}' if self.weights else ''}. For another run add {another}"
            )
        if not (output / METRICS).exists():
            print(f"Resuming the run in {output}. For a new one add {another}")
            return recipe
        try:
            check_unchanged(recipe, open_dataset(recipe.data))
        except ValueError as error:
            raise ValueError(f"{error} For a new run add {another}") from error
        print(f"The run in {output} is finished. For a new one add {another}")
        return recipe

    def _open(self):
        from keras_vit.recipes.configs.finetune import SMALL
        from keras_vit_cli.finetune.folder import open_images

        return open_images(self.folder, SMALL.data)

    def _load(self):
        """The name of the weights, and the model without a head."""
        load = partial(self.preparation.load, num_classes=0)
        if self.weights:
            return self.weights, load(self.weights)
        return load_default(load, lambda model: OFFLINE_NOTE)
