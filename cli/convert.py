"""`keras-vit convert`: a checkpoint from one project's format to another's."""

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Literal

import tyro


@dataclass(frozen=True)
class Convert:
    """Convert a checkpoint to .npz, .safetensors (as transformers has it) or .keras.

    Args:
        weights: File, folder or name: whatever `keras_vit.load` takes.
        output: name.npz, folder/model.safetensors or folder/, name.keras; the ending says the format.
        image_size: Side of the images in pixels, to resample positions; by default that of the checkpoint.
        weights_image_size: Height and width that the checkpoint was trained at, where it does not say.
        num_classes: 0 leaves the head out; by default it is kept.
        num_heads: Attention heads, where the checkpoint does not say.
        gelu: Instead of the checkpoint's: .npz means "tanh". The original weights of Google were trained with it,
            whatever the files that others made of them say.
        epsilon: Of the normalizations instead of the checkpoint's: .npz means 1e-6.
        overwrite: Replace files that are there already.
    """

    weights: Annotated[str, tyro.conf.Positional, tyro.conf.arg(metavar="WEIGHTS")]
    output: Annotated[Path, tyro.conf.Positional, tyro.conf.arg(metavar="OUTPUT")]
    image_size: int | None = None
    weights_image_size: tuple[int, int] | None = None
    num_classes: int | None = None
    num_heads: int | None = None
    gelu: Literal["tanh", "erf"] | None = None
    epsilon: float | None = None
    overwrite: bool = False

    def run(self):
        """Loads, writes, and prints what was written."""
        self._check_request()
        from keras_vit import load
        from keras_vit.model_card import model_card
        from keras_vit.weights.saving import save

        names = ("image_size", "weights_image_size", "num_heads", "gelu", "epsilon")
        given = {name: getattr(self, name) for name in names if getattr(self, name) is not None}
        model = load(self.weights, num_classes=self.num_classes, **given)
        card = model_card(
            model, self.output.name, f"Converted from `{self.weights}`{_changes(given, self.num_classes)}."
        )
        for file in save(model, self.output, self.overwrite, card):
            print(f"Wrote {file} ({file.stat().st_size / 1e6:,.1f} MB)")

    def _check_request(self):
        """Raises ValueError or FileExistsError for what can be seen before anything is loaded."""
        from keras_vit.weights.saving import main_file

        file = main_file(self.output)
        if file.exists() and not self.overwrite:
            raise FileExistsError(f"{file.absolute()} exists already. Remove it, or give --overwrite.")
        if self.num_classes is not None and self.num_classes < 0:
            raise ValueError(f"--num-classes must be 0, for no head, or more. Received: {self.num_classes}")


def _changes(given, num_classes):
    """What the card says was chosen in converting; the numbers of a resized model are others."""
    chosen = given if num_classes is None else {**given, "num_classes": num_classes}
    return " with " + ", ".join(f"{name}={value}" for name, value in chosen.items()) if chosen else ""
