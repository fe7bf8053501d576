"""What a .tflite file says of its model, and how that is printed."""

import json
import math
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np

from keras_vit.export.labels import one_line_each
from keras_vit.export.tflite.flatbuffer import Signature


@dataclass(frozen=True)
class Description:
    """What a file says of its model.

    Args:
        name, description, version, author, license: Of the model, in words; "" leaves one out.
        labels: The class of each output, in their order; None for a model without classes.
        mean, std: What a phone does with pixels in [0, 255] before the model: (pixel - mean) / std. One number or one
            of each channel; 0 and 1 when the model takes pixels as they are. MediaPipe refuses channels that differ.
        preprocessing: The fields of `keras_vit.Preprocessing`, or anything else that JSON can hold.

    Raises:
        ValueError: A label is empty or has several lines; means or deviations are not 1 or 3 finite
            numbers, a deviation not above 0; `preprocessing` is nothing that JSON can hold.
    """

    name: str
    description: str = ""
    version: str = ""
    author: str = ""
    license: str = ""
    labels: tuple[str, ...] | None = None
    mean: tuple[float, ...] = (0.0,)
    std: tuple[float, ...] = (1.0,)
    preprocessing: dict = field(default_factory=dict)

    def __post_init__(self):
        if self.labels is not None:
            object.__setattr__(self, "labels", tuple(one_line_each(self.labels)))
        for name in ("mean", "std"):
            values = tuple(np.ravel(getattr(self, name)).astype("float32").tolist())
            if len(values) not in (1, 3) or not all(map(math.isfinite, values)) or (name == "std" and min(values) <= 0):
                raise ValueError(f"`{name}` must be one number or three, a deviation above 0. Received: {values}")
            object.__setattr__(self, name, values)
        if len(self.mean) != len(self.std):
            raise ValueError(f"`mean` and `std` must be as long as each other. Received: {self.mean}, {self.std}")
        try:
            # What a reader will get: lists for tuples, strings for keys.
            object.__setattr__(self, "preprocessing", json.loads(json.dumps(self.preprocessing)))
        except TypeError as error:
            raise ValueError(f"`preprocessing` must be plain values, as JSON has them: {error}") from error


@dataclass(frozen=True)
class DescribedFile:
    """What `read_description` found; `print` shows it.

    Args:
        path: Of the file.
        size_bytes: On disk.
        signatures: Of each name, the one that runs by default first.
        subgraphs: Their number: one for each signature, and those that operations call.
        description: Of the metadata.
    """

    path: Path
    size_bytes: int
    signatures: dict[str, Signature]
    subgraphs: int
    description: Description

    @property
    def mediapipe_objection(self) -> str | None:
        """Why MediaPipe's ImageClassifier (1.2.2) refuses the file; None when it does not."""
        inputs = next(iter(self.signatures.values())).inputs
        if self.subgraphs > 1:
            return f"it wants one subgraph, this file has {self.subgraphs}; export that signature alone"
        if [len(tensor.shape) for tensor in inputs] != [4] or inputs[0].dtype not in ("float32", "uint8"):
            return f"it wants one image, float32 or uint8, this file {', '.join(map(str, inputs)) or 'nothing'}"
        if inputs[0].dtype == "float32" and max(len(set(self.description.mean)), len(set(self.description.std))) > 1:
            return "it scales all channels alike; put the scaling into the model"
        return None

    def __str__(self):
        about = self.description
        lines = [f"{self.path.name}: {self.size_bytes / 1e6:.2f} MB"]
        for name in ("name", "description", "version", "author", "license"):
            lines += [f"  {name:<14} {getattr(about, name)}"] if getattr(about, name) else []
        for key, signature in self.signatures.items():
            lines.append(f"  signature      {key or '(without a name)'}")
            lines += [f"    in           {tensor}" for tensor in signature.inputs]
            lines += [f"    out          {tensor}" for tensor in signature.outputs]
        mean, std = (", ".join(f"{value:.6g}" for value in values) for values in (about.mean, about.std))
        lines.append(f"  pixels         RGB in [0, 255]; the model is given (pixel - [{mean}]) / [{std}]")
        if about.labels is None:
            lines.append("  labels         none")
        else:
            shown = "; ".join(about.labels[:5]) + ("; ..." if len(about.labels) > 5 else "")
            lines.append(f"  labels         {len(about.labels)}: {shown}")
        objection = self.mediapipe_objection
        lines.append(f"  MediaPipe      {'takes it' if objection is None else f'no ImageClassifier: {objection}'}")
        lines += [f"  preprocessing  {key}: {value}" for key, value in about.preprocessing.items()]
        return "\n".join(lines)
