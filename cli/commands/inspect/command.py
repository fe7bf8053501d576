"""`keras-vit inspect`: an HTML report of a model's attention and of what it learned."""

import math
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

from keras_vit_cli.inputs import check_model
from keras_vit_cli.preprocessing_flags import AS_SAVED, Loading
from keras_vit_cli.words import IMAGES, Model, Output

REPORT = "inspect.html"


@dataclass(frozen=True)
class Inspect:
    """Write an HTML report of a model's attention on your images.

    docs/inspect.md explains it. --output is the file, which must not exist, or a folder for inspect.html. The report is
    a single file that works offline: interactive attention maps by layer and head, attention rollout, attention
    distance, similarity of position embeddings and of layers, patch embedding filters, nearest neighbors, and
    reconstructions of a masked-patch model or masked autoencoder.

    Args:
        num_shown: Number of images to show, evenly spaced in the sorted folder.
        max_images: Largest number of images for distances, similarities and neighbors, evenly spaced in the sorted
            folder. The paper used 128 for the distances.
        max_megabytes: Size limit of the attention maps, without the images and figures of the report. For large models
            fewer images, then fewer layers are shown.
    """

    model: Model
    images: Annotated[Path, IMAGES]
    output: Output
    num_shown: int = 6
    max_images: int = 128
    max_megabytes: float = 8.0
    preparation: Loading = AS_SAVED

    def run(self):
        """Reads the images, inspects the model and writes the report."""
        path = self._check_output()
        check_model(self.model, f"Its attention cannot be read; keras-vit describe {self.model} prints its outputs.")
        from keras_vit.atomic_write import write_file
        from keras_vit_cli.image_files import evenly_spaced, list_images, read_images, without_damaged

        files = list_images(self.images)
        from keras_vit_cli.commands.inspect.model import open_model
        from keras_vit_cli.commands.inspect.report import make_report

        inspected = open_model(self.model, self.preparation)
        selected = without_damaged([files[i] for i in evenly_spaced(len(files), self.max_images)])
        print(f"Reading {len(selected):,} of {len(files):,} image{'s' * (len(files) != 1)} from {self.images}")
        images = read_images(inspected.vit.preprocessing, self.images, selected)
        text, attention_size = make_report(
            inspected, images, self.model, str(self.images), self.num_shown, self.max_megabytes
        )
        path.parent.mkdir(parents=True, exist_ok=True)
        write_file(path, text)
        print(f"{attention_size}\nWritten to {path.absolute()}, {path.stat().st_size / 1e6:.1f} MB")

    def _check_output(self) -> Path:
        """The file to write; raises ValueError for invalid options before anything is read."""
        if self.num_shown < 1 or self.max_images < 1 or not 0 < self.max_megabytes < math.inf:
            raise ValueError(
                "--num-shown and --max-images must be at least 1, --max-megabytes above 0. Received: "
                f"{self.num_shown}, {self.max_images} and {self.max_megabytes}"
            )
        path = self.output if self.output.suffix.lower() in (".html", ".htm") else self.output / REPORT
        if path.exists():
            raise ValueError(f"{path.absolute()} already exists. Remove it or choose another --output.")
        for parent in path.parents:
            if parent.exists() and not parent.is_dir():
                raise ValueError(f"{parent.absolute()} is a file, not a folder. Choose another --output.")
        return path
