"""`keras-vit convert`: converts checkpoints between formats."""

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Literal

import tyro


@dataclass(frozen=True)
class Convert:
    """Convert a checkpoint to .npz (vision_transformer), .safetensors (transformers) or .keras.

    Args:
        weights: File, folder or name, as for `keras_vit.load`.
        output: name.npz, name.keras, folder/model.safetensors or folder/; the extension selects the format.
        image_size: New image size in pixels, for which position embeddings are resampled; default: unchanged.
        weights_image_size: Height and width of the training images, if the checkpoint does not specify them.
        num_classes: 0 omits the head; default: unchanged.
        num_heads: Number of attention heads, if the checkpoint does not specify it.
        gelu: Overrides the checkpoint's GELU. Google's original weights were trained with "tanh", even if converted
            files specify "erf"; .npz files imply "tanh".
        epsilon: Overrides the epsilon of the layer normalizations; .npz files imply 1e-6.
        overwrite: Replace existing files.
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
        """Converts, and prints the written files."""
        self._check_request()
        from keras_vit import load
        from keras_vit.model_card import model_card
        from keras_vit.weights.saving import save

        names = ("image_size", "weights_image_size", "num_heads", "gelu", "epsilon")
        options = {name: getattr(self, name) for name in names if getattr(self, name) is not None}
        model = load(self.weights, num_classes=self.num_classes, **options)
        if self.num_classes is not None:
            options["num_classes"] = self.num_classes
        changes = " with " + ", ".join(f"{name}={value}" for name, value in options.items()) if options else ""
        card = model_card(model, self.output.name, f"Converted from `{self.weights}`{changes}.")
        for file in save(model, self.output, self.overwrite, card):
            print(f"Wrote {file} ({file.stat().st_size / 1e6:,.1f} MB)")

    def _check_request(self):
        """Raises ValueError or FileExistsError for invalid options before anything is loaded."""
        from keras_vit.weights.saving import main_file

        file = main_file(self.output)
        if file.exists() and not self.overwrite:
            raise FileExistsError(f"{file.absolute()} already exists. Remove it or pass --overwrite.")
        if self.num_classes is not None and self.num_classes < 0:
            raise ValueError(f"--num-classes must be at least 0 (no head). Received: {self.num_classes}")
