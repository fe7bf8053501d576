"""The end of `keras-vit finetune`: the exported file, the accuracy, and what to do next."""

import shlex
from pathlib import Path

import keras

from keras_vit.recipes.data import count_examples, open_dataset
from keras_vit.recipes.recipe import Supervised
from keras_vit_cli.export.command import Export, Format

FORMAT: Format = "dynamic-int8"  # requires no calibration; no accuracy drop in docs/export.md
FILE = f"model-{FORMAT}.tflite"
CHECKED_IMAGES = 200


def export_checked(recipe: Supervised, output: Path) -> Path | None:
    """Writes the run's .tflite file, unless it is there, and prints how it compares with Keras.

    Returns:
        Its path; None with Keras on JAX, which does not export.
    """
    if keras.backend.backend() == "jax":
        return None
    folder = output / "exported"
    if not (folder / FILE).exists():
        print("\nExport to a .tflite file with 8-bit weights, compared with Keras on test images", flush=True)
        checked = min(CHECKED_IMAGES, _test_images(recipe))
        Export(
            str(output),
            output=folder,
            formats=(FORMAT,),
            dataset=recipe.data.dataset,
            split=recipe.data.test_split,
            check_images=CHECKED_IMAGES,
            max_corrupt=recipe.data.max_corrupt,
            max_accuracy_drop=max(1.0, 250 / checked),  # two images more or less are no sign of a defect
            keep_going=True,
        ).run()
    return folder / FILE


def print_result(recipe: Supervised, output: Path, file: Path | None, metrics: dict):
    """Prints accuracy, files and the next commands."""
    data, run = recipe.data, shlex.quote(str(output))
    evaluated = f"--dataset {shlex.quote(data.dataset)} --split {data.test_split}"
    test_images = metrics["images"]  # without those that cannot be decoded
    skip = f" --max-corrupt {data.max_corrupt:g}" if test_images < _test_images(recipe) else ""
    tflite = "For a .tflite file repeat this command with KERAS_BACKEND=tensorflow: nothing is trained again."
    if file:
        tflite = f"{file}  for phones, {file.stat().st_size / 1e6:.1f} MB"
    print(
        f"""
top-1 {100 * metrics["top1"]:.1f} % of {test_images:,} test images ({data.test_split!r}), which were not trained on
{output / "model.keras"}  the model, {output / "model_card.md"} its card
{tflite}

Next:
    keras-vit classify IMAGE --model {run}
    keras-vit evaluate {run} {evaluated} --per-class{skip}
    keras-vit inspect {run} --images {shlex.quote(data.dataset.removeprefix("folder:"))} --output attention.html
    keras-vit export {run} {evaluated}{skip} --formats web --output {shlex.quote(str(output / "web"))}"""
    )


def _test_images(recipe) -> int:
    return count_examples(open_dataset(recipe.data), recipe.data.test_split)
