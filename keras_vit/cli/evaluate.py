"""`keras-vit evaluate`: accuracy of a model on a data set, pictures prepared as its weights want them."""

from dataclasses import dataclass, replace
from typing import Annotated, Literal

import tyro


@dataclass(frozen=True)
class Evaluate:
    """Print top-1 and top-5 accuracy; every picture counts once.

    Args:
        weights: File, folder or name: whatever `keras_vit.load` takes.
        dataset: "digits", a name of TensorFlow Datasets, or "folder:/path" with /path/<split>/<class>/<picture>.
        split: In TensorFlow Datasets' notation, such as "test" or "validation[:10%]".
        data_dir: Where prepared data sets are kept; by default TensorFlow Datasets' own place.
        batch_size: Pictures at a time.
        resize: Instead of the way that belongs to the weights: "squash" or "shortest" side, see `Preprocessing`.
        crop_fraction: Instead of the share that belongs to the weights.
    """

    weights: Annotated[str, tyro.conf.Positional]
    dataset: str
    split: str = "test"
    data_dir: str | None = None
    batch_size: int = 64
    resize: Literal["squash", "shortest"] | None = None
    crop_fraction: float | None = None

    def run(self):
        """Evaluates and prints."""
        import numpy as np

        from keras_vit import load
        from keras_vit.recipes.data import class_names, decoded_pictures, open_dataset
        from keras_vit.recipes.recipe import Data

        model = load(self.weights)
        builder = open_dataset(Data(dataset=self.dataset, data_dir=self.data_dir))
        classes = class_names(builder)
        if model.num_classes != len(classes):
            raise ValueError(
                f"{self.dataset!r} has {len(classes)} classes, but the model has {model.num_classes}. Fine-tune it on "
                "this data first."
            )
        changes = {"resize": self.resize, "crop_fraction": self.crop_fraction}
        changes = {name: value for name, value in changes.items() if value is not None}
        prepare = replace(_preprocessing(model, self.weights), **changes)
        ranks = []
        for pictures, labels in decoded_pictures(builder, self.split, self.batch_size):
            if labels.min() < 0:
                raise ValueError(f"The split {self.split!r} of {self.dataset!r} has no labels. Choose another split.")
            logits = np.asarray(model.predict_on_batch(prepare(pictures)))
            # Of equal logits the first class wins, as in argmax: a head of zeros is right by chance only.
            order = np.argsort(-logits, axis=-1, kind="stable")  # (B, classes), the likeliest first
            ranks.append((order == labels[:, None]).argmax(axis=-1))
        ranks = np.concatenate(ranks)
        print(f"{len(ranks):,} pictures of {self.dataset} ({self.split}), {prepare}")
        print(f"top-1 {np.mean(ranks < 1):.2%}")
        if len(classes) > 5:
            print(f"top-5 {np.mean(ranks < 5):.2%}")


def _preprocessing(model, weights):
    """A BiT does not carry its preprocessing: the file's source says it."""
    from keras_vit import Preprocessing
    from keras_vit.weights import open_checkpoint

    if hasattr(model, "preprocessing"):
        return model.preprocessing
    fields = {} if weights.endswith(".keras") else open_checkpoint(weights).preprocessing
    return Preprocessing(model.image_size or 224, **fields)
