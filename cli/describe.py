"""`keras-vit describe`: what a checkpoint is."""

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import tyro


@dataclass(frozen=True)
class Describe:
    """Print a checkpoint's architecture, resolution, classes, source, GELU, epsilon and preprocessing.

    Args:
        weights: File, folder or name: whatever `keras_vit.load` takes.
        json: Print JSON for programs.
    """

    weights: Annotated[str, tyro.conf.Positional, tyro.conf.arg(metavar="WEIGHTS")]
    json: bool = False

    def run(self):
        """Reads names and shapes, of a .keras file the whole model, and prints what they say."""
        description = _described(self.weights)
        if self.json:
            print(json.dumps(description, indent=2))
            return
        preprocessing, arguments = description.pop("preprocessing"), description.pop("arguments")
        for name, value in description.items():
            print(f"{name:<14}{value:,}" if isinstance(value, int) else f"{name:<14}{value}")
        for title, values in (("preprocessing", preprocessing), ("arguments", arguments)):
            print(f"{title}:")
            for name, value in values.items():
                print(f"  {name:<20}{value}")


def _described(weights) -> dict:
    if not weights.endswith(".keras") and not (Path(weights) / "model.keras").is_file():
        from keras_vit.weights import open_checkpoint

        return open_checkpoint(weights).describe()
    from keras_vit import load
    from keras_vit.weights.checkpoint import description

    model = load(weights)
    images = model.preprocessing.get_config()
    return description("keras_vit", type(model).__name__, model.arguments, images, model.count_params())
