"""`keras-vit inspect`: what a model looks at and what it learned, as one page."""

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import tyro

PAGE = "inspect.html"


@dataclass(frozen=True)
class Inspect:
    """Write a page that shows what a Vision Transformer looks at in images of yours. docs/inspect.md reads it.

    It is one file that needs neither network nor server: attention by layer and head from any patch that is clicked,
    attention rollout, attention distance, similarity of positions and of layers, filters, nearest neighbors, and the
    reconstructions of a masked-patch model.

    Args:
        weights: File, folder or name: whatever `keras_vit.load` takes; or a run's folder.
        images: Folder with images, at any depth.
        output: File to write, or a folder for inspect.html; the file must not exist yet.
        num_shown: So many are shown, evenly over the folder.
        max_images: So many are read at most, evenly over the folder, for distances, similarities and neighbors. The
            paper took 128 for the distances.
        max_megabytes: What attention may take in the page; with large models it is of fewer images, then layers.
    """

    weights: Annotated[str, tyro.conf.Positional, tyro.conf.arg(metavar="WEIGHTS")]
    images: Path
    output: Path
    num_shown: int = 6
    max_images: int = 128
    max_megabytes: float = 8.0

    def run(self):
        """Looks and writes."""
        page = self._checked_page()
        from keras_vit_cli.image_files import list_images, read_images, spread
        from keras_vit.recipes.remote_files import write_file

        files = list_images(self.images)
        from keras_vit_cli.inspect.model import open_inspected
        from keras_vit_cli.inspect.report import make_report

        inspected = open_inspected(self.weights)
        chosen = [files[i] for i in spread(len(files), self.max_images)]
        print(f"Reading {len(chosen):,} of {len(files):,} images of {self.images}")
        images = read_images(inspected.vit, self.images, chosen)
        text, remark = make_report(inspected, images, self.num_shown, self.max_megabytes)
        page.parent.mkdir(parents=True, exist_ok=True)
        write_file(page, text)
        print(f"{remark}\nWritten to {page.absolute()}, {page.stat().st_size / 1e6:.1f} MB")

    def _checked_page(self) -> Path:
        """The file to write; raises ValueError for what can be seen before anything is read."""
        if self.num_shown < 1 or self.max_images < 1 or not self.max_megabytes > 0:
            raise ValueError(
                "--num-shown and --max-images must be at least 1, --max-megabytes above 0. Received: "
                f"{self.num_shown}, {self.max_images} and {self.max_megabytes}"
            )
        page = self.output if self.output.suffix.lower() in (".html", ".htm") else self.output / PAGE
        if page.exists():
            raise ValueError(f"{page.absolute()} exists already. Remove it or choose another --output.")
        for parent in page.parents:
            if parent.exists() and not parent.is_dir():
                raise ValueError(f"{parent.absolute()} is a file, not a folder. Choose another --output.")
        return page
