"""`keras-vit describe`: the configuration of a checkpoint."""

import json
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Annotated

import tyro

from keras_vit_cli.evaluated_inputs import check_model


@dataclass(frozen=True)
class Describe:
    """Print a checkpoint's architecture, resolution, classes, source, GELU, epsilon and preprocessing.

    Args:
        weights: File, folder or name, as for `keras_vit.load`.
        json: Print JSON.
    """

    weights: Annotated[str, tyro.conf.Positional, tyro.conf.arg(metavar="WEIGHTS")]
    json: bool = False

    def run(self):
        """Prints the configuration. Reads names and shapes of arrays only, or the whole model of a .keras file."""
        check_model(self.weights, f"keras-vit export {self.weights} --describe prints what it contains.")
        from keras_vit.name_list import first_names

        description = _describe(self.weights)
        if self.json:
            print(json.dumps(description, indent=2))
            return
        preprocessing, arguments = description.pop("preprocessing"), description.pop("arguments")
        names = description["class_names"]
        description["class_names"] = names if isinstance(names, str) else first_names(names)
        for name, value in description.items():
            print(f"{name:<14}{value:,}" if isinstance(value, int) else f"{name:<14}{value}")
        for title, values in (("preprocessing", preprocessing), ("other arguments", arguments)):
            print(f"{title}:")
            for name, value in values.items():
                if name not in description:
                    unknown = name == "num_heads" and value is None
                    print(f"  {name:<20}{'not in the file: pass num_heads' if unknown else value}")


def _describe(weights) -> dict:
    from keras_vit.trained import local_folder

    weights = local_folder(weights)
    if not weights.endswith(".keras") and not (Path(weights) / "model.keras").is_file():
        from keras_vit.class_names import own_class_names
        from keras_vit.pixel_range import warn_if_assumed
        from keras_vit.preprocessing import Preprocessing
        from keras_vit.weights import open_checkpoint

        checkpoint = open_checkpoint(weights)
        warn_if_assumed(weights, Preprocessing((1, 1), **checkpoint.preprocessing))  # of any size
        found = checkpoint.describe()
        names = own_class_names(weights, found["num_classes"])  # in a file beside the weights
        return {**found, "class_names": names or found["class_names"]}
    from keras_vit import load
    from keras_vit.weights.checkpoint import description

    model = load(weights)
    preprocessing = model.preprocessing.get_config()
    return description("keras_vit", type(model).__name__, asdict(model.config), preprocessing, model.count_params())
