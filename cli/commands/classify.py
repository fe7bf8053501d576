"""`keras-vit classify`: what is on photographs, by a Keras model or an exported one. B images, C classes."""

from contextlib import nullcontext
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Annotated

import tyro

from keras_vit_cli.inputs import OFFLINE, check_exported, check_weights, is_exported, load_default
from keras_vit_cli.output_folder import check_replaceable, check_table, json_output
from keras_vit_cli.preprocessing_flags import AS_SAVED, Loading
from keras_vit_cli.process import without_native_logs
from keras_vit_cli.words import IMAGES, MODEL, Json, OptionalOutput

BATCH_SIZE = 32


@dataclass(frozen=True)
class Classify:
    """Print the most likely classes of photographs.

    Files that are no images are named at the end; those in a folder are skipped. --output is a CSV file, which is
    replaced: of each image its file, the most likely class and the probability of every class.

    MODEL is also a .tflite file, an .onnx file or a SavedModel of `keras-vit export`, or the .keras file of a model
    around one of keras_vit. Default: AugReg's S/16 for the 1000 classes of ImageNet, downloaded once (0.09 GB), or,
    where no download is possible, the small model of the package, which knows the ten classes of CIFAR-10.

    Args:
        top: Number of classes per image.
        attention: Folder for a copy of each image that shows the evidence for its first class in orange, within the
            rectangle that the model sees if it crops images. It must be empty or missing.
    """

    images: Annotated[tuple[Path, ...], tyro.conf.Positional, IMAGES]
    model: Annotated[str | None, MODEL] = None
    top: Annotated[int, tyro.conf.arg(metavar="N")] = 5
    output: OptionalOutput = None
    json: Json = False
    attention: Annotated[Path | None, tyro.conf.arg(metavar="FOLDER")] = None
    preparation: Loading = AS_SAVED

    def run(self):
        """Classifies, and prints a few lines per image; raises ValueError at the end if there is an unreadable file."""
        files, unreadable = self._files()
        with json_output(self.json) as show:
            model = self._load()
            with self._table(model) as table:
                self._classify(model, files, unreadable, show, table)
        if unreadable:
            raise ValueError("\n".join([*unreadable, "All others are classified above."]))

    def _table(self, model):
        """The context of the table of --output, which is None without."""
        if self.output is None:
            return nullcontext()
        from keras_vit.models.classification import output_names
        from keras_vit.recipes.evaluation.logits import activation_of
        from keras_vit.recipes.evaluation.predictions import write_predictions

        return write_predictions(self.output, output_names(model), activation_of(model))

    def _classify(self, model, files, unreadable, show, table):
        from keras_vit_cli.image_files import print_note_on_range, unreadable_reason

        print_note_on_range(model.preprocessing, files)
        results = {}
        if self.attention:
            from keras_vit_cli.evidence import evidence_undefined, write_evidence

            if reason := evidence_undefined(model):
                raise ValueError(f"--attention is not defined for {model.name}: {reason}.")
        classify = partial(model.classify, top=self.top) if table is None else self._writing(model, table)
        if self.model and is_exported(self.model):
            classify = without_native_logs()(classify)
        for start in range(0, len(files), BATCH_SIZE):
            batch, reasons = files[start : start + BATCH_SIZE], {}
            try:
                classes = classify(batch)
            except (OSError, ValueError):
                reasons = {file: reason for file in batch if (reason := unreadable_reason(file))}
                if not reasons:
                    raise
                batch = [file for file in batch if file not in reasons]  # the others have not changed meanwhile
                classes = classify(batch) if batch else []
            unreadable += reasons.values()
            for file, best in zip(batch, classes):
                results[str(file)] = [{"class": name, "probability": probability} for name, probability in best]
                if not self.json:
                    print("\n".join([str(file), *(f"{probability:8.1%}  {name}" for name, probability in best)]))
        show(results, lambda: None)
        if self.attention:
            count = len(write_evidence(model, [file for file in files if str(file) in results], self.attention))
            print(f"Wrote {count:,} image{'s' * (count != 1)} to {self.attention.absolute()}")

    def _writing(self, model, table):
        """`model.classify`, which also adds the images to the table."""
        from keras_vit.class_names import top_classes
        from keras_vit.images.rgb import as_rgb
        from keras_vit.models.classification import output_names
        from keras_vit.recipes.evaluation.logits import activation_of, logits_of_images

        logits_of, names, activation = logits_of_images(model), output_names(model), activation_of(model)

        def classify(files):
            logits = logits_of([as_rgb(file, model.preprocessing.pixel_range) for file in files])
            table.add([str(file) for file in files], logits, [-1] * len(files))
            return top_classes(logits, names, self.top, activation)

        return classify

    def _files(self) -> tuple[list[Path], list[str]]:
        """The images, and for each other file why it is none.

        Raises:
            ValueError, OSError: Invalid options or no image, before a model is loaded.
        """
        if not self.images:
            raise ValueError("Expected images: keras-vit classify cat.jpg folder/")
        if self.top < 1:
            raise ValueError(f"--top must be at least 1. Received: {self.top}")
        if self.output:
            check_table(self.output)
        if self.attention:
            check_replaceable(self.attention, option="--attention")
            if self.model and is_exported(self.model):
                raise ValueError("--attention requires gradients, which exported models lack: pass the Keras model.")
        if not self.model or is_exported(self.model):
            self.preparation.check_stated(self.model)
        missing = [str(path) for path in self.images if not path.exists()]
        if missing:
            raise FileNotFoundError(f"There is no image {', '.join(missing)}")
        if self.model and is_exported(self.model):
            check_exported(self.model)
        else:
            check_weights(self.model)
        from keras_vit_cli.image_files import list_images, unreadable_reason, without_damaged

        reasons = {path: unreadable_reason(path) for path in self.images if not path.is_dir()}
        in_folders = [(without_damaged(list_images(path)) if path.is_dir() else [path]) for path in self.images]
        files = [file for files in in_folders for file in files if not reasons.get(file)]
        unreadable = [reason for reason in reasons.values() if reason]
        if not files:
            raise ValueError("\n".join(unreadable))
        return files, unreadable

    def _load(self):
        if self.model:
            return self.preparation.open(self.model)
        from keras_vit import load

        _, model = load_default(load, _offline_note)
        return model


def _offline_note(model):
    names = ", ".join(model.class_names)
    return (
        f"These are answers of {OFFLINE}, which is in the package and knows only: {names}.\nFor another model pass "
        "--model."
    )
