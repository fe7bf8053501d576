"""Folders of trainings: recipe.json is written at the start of a run, and its model, model.keras, at its end."""

from pathlib import Path

RECIPE, MODEL = "recipe.json", "model.keras"


def is_unfinished(run) -> bool:
    """Whether a local folder is that of a run without a model."""
    return (Path(run) / RECIPE).is_file() and not (Path(run) / MODEL).is_file()


def unfinished_message(run) -> str:
    """What to do about a run without a model."""
    return (
        f"The run in {run} has not finished: it has {RECIPE}, but no {MODEL}. Finish it with keras-vit train {run} "
        f"--run.folder {run} --run.resume"
    )
