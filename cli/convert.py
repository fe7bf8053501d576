"""`keras-vit convert`: converts checkpoints between formats, and uploads them to the Hugging Face Hub."""

import re
import shutil
import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Literal

import tyro

from keras_vit_cli.given_paths import check_weights
from keras_vit_cli.preprocessing_flags import AS_STATED, Preparation

README = "README.md"


@dataclass(frozen=True)
class Convert:
    """Convert a checkpoint to .npz (vision_transformer), .safetensors (transformers) or .keras.

    A model card is written beside the file, and the class names if the checkpoint is a run or has them beside it:
    name.npz.labels.txt, in a folder labels.txt and config.json.

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
        preparation: How images are prepared, if it is not as the weights state.
        dtype: "float16" halves the file. `keras_vit.load(file)` then still computes in float32. Default: float32.
        overwrite: Replace existing files.
        push: Repository of the Hugging Face Hub, owner/name, to which the files are also uploaded, with the card as
            README.md. `keras_vit.load("hf:owner/name")` loads a folder with model.safetensors.
    """

    weights: Annotated[str, tyro.conf.Positional, tyro.conf.arg(metavar="WEIGHTS")]
    output: Annotated[Path, tyro.conf.Positional, tyro.conf.arg(metavar="OUTPUT")]
    image_size: int | None = None
    weights_image_size: tuple[int, int] | None = None
    num_classes: int | None = None
    num_heads: int | None = None
    gelu: Literal["tanh", "erf", "quick"] | None = None
    epsilon: float | None = None
    preparation: Preparation = AS_STATED
    dtype: Literal["float32", "float16"] | None = None
    overwrite: bool = False
    push: str | None = None

    def run(self):
        """Converts, and prints the written files."""
        self._check_request()
        from keras_vit.model_card import model_card
        from keras_vit.weights.saving import save

        names = ("image_size", "weights_image_size", "num_heads", "gelu", "epsilon", "dtype")
        options = {name: getattr(self, name) for name in names if getattr(self, name) is not None}
        model = self.preparation.load(self.weights, num_classes=self.num_classes, **options)
        class_names = model.class_names  # None of another head
        changed = {"num_classes": self.num_classes, **(self.preparation.fields() or {})}
        options |= {name: value for name, value in changed.items() if value is not None}
        changes = " with " + ", ".join(f"{name}={value}" for name, value in options.items()) if options else ""
        card = model_card(model, self.output.name, f"Converted from `{self.weights}`{changes}.")
        files = save(model, self.output, self.overwrite, card, class_names)
        for file in files:
            print(f"Wrote {file} ({file.stat().st_size / 1e6:,.1f} MB)")
        if class_names is None:
            self._remove_old_names()
        if self.push:
            from keras_vit.weights.saving import card_file, main_file

            print(f"Uploaded to {push(files, card_file(main_file(self.output)), self.push)}")

    def _check_request(self):
        """Raises ValueError or OSError for invalid options before anything is loaded."""
        from keras_vit.class_names import labels_file
        from keras_vit.weights.saving import card_file, main_file

        if self.push:
            check_push(self.push)
        file = main_file(self.output)
        files = [file, card_file(file), labels_file(file)]
        if file.suffix == ".safetensors":
            files += [file.with_name("config.json"), file.with_name("preprocessor_config.json")]
        existing = [file for file in files if file.exists()]
        if existing and not self.overwrite:
            raise FileExistsError(f"{existing[0].absolute()} already exists. Remove it or pass --overwrite.")
        if self.num_classes is not None and self.num_classes < 0:
            raise ValueError(f"--num-classes must be at least 0 (no head). Received: {self.num_classes}")
        check_weights(self.weights)

    def _remove_old_names(self):
        """Removes the class names of a model that --overwrite replaced by one without names."""
        from keras_vit.class_names import labels_file
        from keras_vit.weights.saving import main_file

        old = labels_file(main_file(self.output))
        if old.exists() and old.resolve() != labels_file(self.weights).resolve():
            old.unlink()


def check_push(repository: str):
    """Raises ValueError for a name of another form or without a login, and ImportError without huggingface_hub."""
    if not re.fullmatch(r"[\w.-]+/[\w.-]+", repository):
        raise ValueError(f"--push must be owner/name, a repository of the Hugging Face Hub. Received: {repository!r}")
    try:
        from huggingface_hub import get_token
    except ImportError as error:
        raise ImportError("--push requires huggingface_hub: pip install 'keras_vit[hub]'.") from error
    if get_token() is None:
        raise ValueError("--push requires a login: run `hf auth login` with a token that may write, or set HF_TOKEN.")


def push(files: list[Path], card: Path, repository: str) -> str:
    """Uploads files in one commit and creates the repository if there is none; returns its address.

    Other files of the repository are not changed. The login is that of `hf auth login`, or HF_TOKEN.

    Args:
        files: Of the model.
        card: The one of them that becomes README.md.
        repository: "owner/name".

    Raises:
        ConnectionError: The Hub cannot be reached or refuses, for example without a login. The files are unchanged.
    """
    from huggingface_hub import HfApi

    api = HfApi()
    with tempfile.TemporaryDirectory() as folder:
        for file in files:
            shutil.copy(file, Path(folder) / (README if file == card else file.name))
        try:
            address = api.create_repo(repository, exist_ok=True)
            message = "Upload a model with keras-vit"
            api.upload_folder(repo_id=repository, folder_path=folder, commit_message=message)
        except Exception as error:  # errors of HTTP and the transfer share no class
            reason = " ".join(str(error).split())[:300].rstrip(".")
            raise ConnectionError(
                f"The files could not be uploaded to {repository!r} of the Hugging Face Hub: {reason}. Check the "
                "network and that the token of `hf auth login` or HF_TOKEN may write, or upload them by other means: "
                f"{', '.join(str(file.absolute()) for file in files)}."
            ) from error
    return str(address)
