"""`keras-vit describe` and `convert`: what a checkpoint contains, and its conversion to another format."""

from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Annotated, Literal

import tyro

from keras_vit_cli.inputs import check_weights, is_exported
from keras_vit_cli.output_folder import json_output
from keras_vit_cli.preprocessing_flags import AS_SAVED, Loading
from keras_vit_cli.words import Json, Model, Output, Overwrite


@dataclass(frozen=True)
class Describe:
    """Print what a model is: architecture, image size, classes and more.

    Of a .tflite file, an .onnx file or a SavedModel: inputs, outputs, classes and preprocessing.
    """

    model: Model
    json: Json = False

    def run(self):
        """Prints the configuration. Reads names and shapes of arrays only, or the whole model of a .keras file."""
        check_weights(self.model)
        with json_output(self.json) as show:
            if is_exported(self.model):
                from keras_vit.export.exported.opening import describe_exported

                text, fields = describe_exported(self.model)
                show(fields, lambda: print(text))
            else:
                fields = _describe(self.model)
                show(fields, lambda: self._print(fields))

    def _print(self, description):
        from keras_vit.messages import first_names

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
        from keras_vit.images.pixel_range import warn_if_assumed
        from keras_vit.images.preprocessing import Preprocessing
        from keras_vit.weights import open_checkpoint

        checkpoint = open_checkpoint(weights)
        warn_if_assumed(weights, Preprocessing((1, 1), **checkpoint.preprocessing))  # of any size
        described = checkpoint.describe()
        names = own_class_names(weights, described["num_classes"])  # in a file beside the weights
        return {**described, "class_names": names or described["class_names"]}
    from keras_vit import load
    from keras_vit.weights.checkpoint import description

    model = load(weights)
    preprocessing = model.preprocessing.get_config()
    return description("keras_vit", type(model).__name__, asdict(model.config), preprocessing, model.count_params())


@dataclass(frozen=True)
class Convert:
    """Convert weights to another format.

    --output name.npz is the format of google-research/vision_transformer, folder/ or folder/model.safetensors that of
    transformers, name.keras that of Keras. A model card is written beside the file, and the class names if the
    checkpoint is a run or has them beside it: name.npz.labels.txt, in a folder labels.txt and config.json.

    Args:
        weights_image_size: Height and width of the training images, if the checkpoint does not specify them.
        num_classes: 0 omits the head; default: unchanged.
        num_heads: Number of attention heads, if the checkpoint does not specify it.
        gelu: Overrides the checkpoint's GELU. Google's original weights were trained with "tanh", even if converted
            files specify "erf"; .npz files imply "tanh".
        epsilon: Overrides the epsilon of the layer normalizations; .npz files imply 1e-6.
        dtype: "float16" halves the file. `keras_vit.load(file)` then still computes in float32. Default: float32.
    """

    model: Model
    output: Output
    weights_image_size: Annotated[tuple[int, int] | None, tyro.conf.arg(metavar="HEIGHT WIDTH")] = None
    num_classes: int | None = None
    num_heads: int | None = None
    gelu: Literal["tanh", "erf", "quick"] | None = None
    epsilon: float | None = None
    preparation: Loading = AS_SAVED
    dtype: Literal["float32", "float16"] | None = None
    overwrite: Overwrite = False

    def run(self):
        """Converts, and prints the written files."""
        self._check_request()
        from keras_vit.model_card import model_card
        from keras_vit.weights.saving import save

        names = ("weights_image_size", "num_heads", "gelu", "epsilon", "dtype")
        options = {name: getattr(self, name) for name in names if getattr(self, name) is not None}
        model = self.preparation.load(self.model, num_classes=self.num_classes, **options)
        class_names = model.class_names  # None of another head
        changed = {"num_classes": self.num_classes, "image_size": self.preparation.image_size}
        changed |= self.preparation.fields() or {}
        options |= {name: value for name, value in changed.items() if value is not None}
        changes = " with " + ", ".join(f"{name}={value}" for name, value in options.items()) if options else ""
        card = model_card(model, self.output.name, f"Converted from `{self.model}`{changes}.")
        for file in save(model, self.output, self.overwrite, card, class_names):
            print(f"Wrote {file} ({file.stat().st_size / 1e6:,.1f} MB)")
        if class_names is None:
            self._remove_old_names()

    def _check_request(self):
        """Raises ValueError or OSError for invalid options before anything is loaded."""
        from keras_vit.weights.saving import main_file

        file = main_file(self.output)
        if file.exists() and not self.overwrite:
            raise FileExistsError(f"{file.absolute()} already exists. Remove it or pass --overwrite.")
        if self.num_classes is not None and self.num_classes < 0:
            raise ValueError(f"--num-classes must be at least 0 (no head). Received: {self.num_classes}")
        check_weights(self.model)

    def _remove_old_names(self):
        """Removes the class names of a model that --overwrite replaced by one without names."""
        from keras_vit.class_names import labels_file
        from keras_vit.trained import local_folder
        from keras_vit.weights.saving import main_file

        old = labels_file(main_file(self.output))
        if old.exists() and old.resolve() != labels_file(local_folder(self.model)).resolve():
            old.unlink()
