"""What the metadata of a TFLite file say, and whether MediaPipe reads the file; metadata.py writes and reads them."""

import json
import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np

from keras_vit.class_names import checked_lines
from keras_vit.export.names import ATTENTION, EMBED, OUTPUTS
from keras_vit.export.tflite.flatbuffer import Signature

# TensorFlow -> the oldest LiteRT with its kernels.
LITERT = {"2.9.0": "1.0", "2.17.0": "1.0", "2.20.0": "1.4", "2.21.0": "2.1"}
MEDIAPIPE_TASKS = {OUTPUTS[EMBED]: "ImageEmbedder", OUTPUTS[ATTENTION]: None}


@dataclass(frozen=True)
class Description:
    """Metadata of a model.

    Args:
        name, description, version, author, license: Texts; "" omits the field.
        class_names: The class of each output, in their order; None for a model without classes.
        mean, std: Scaling that an app applies to pixels in [0, 255] before the model: (pixel - mean) / std. One number
            or one per channel; 0 and 1 if the model takes pixels as they are. MediaPipe rejects different values per
            channel.
        preprocessing: The fields of `keras_vit.Preprocessing`, or other values that JSON can represent.

    Raises:
        ValueError: A class name is empty or has several lines; `mean` or `std` are not 1 or 3 finite numbers, or a
            standard deviation is not positive; JSON cannot represent `preprocessing`.
    """

    name: str
    description: str = ""
    version: str = ""
    author: str = ""
    license: str = ""
    class_names: Sequence[str] | None = None
    mean: tuple[float, ...] = (0.0,)
    std: tuple[float, ...] = (1.0,)
    preprocessing: dict = field(default_factory=dict)

    def __post_init__(self):
        if self.class_names is not None:
            object.__setattr__(self, "class_names", tuple(checked_lines(self.class_names)))
        for name in ("mean", "std"):
            values = tuple(np.ravel(getattr(self, name)).astype("float32").tolist())
            if len(values) not in (1, 3) or not all(map(math.isfinite, values)) or (name == "std" and min(values) <= 0):
                raise ValueError(f"`{name}` must be one or three finite numbers, `std` positive. Received: {values}")
            object.__setattr__(self, name, values)
        if len(self.mean) != len(self.std):
            raise ValueError(f"`mean` and `std` must have the same length. Received: {self.mean}, {self.std}")
        try:
            # As it will be read back: lists for tuples, strings for keys.
            object.__setattr__(self, "preprocessing", json.loads(json.dumps(self.preprocessing)))
        except TypeError as error:
            raise ValueError(f"`preprocessing` must have values that JSON can represent: {error}") from error


UNDESCRIBED = Description("")  # of a file without metadata


@dataclass(frozen=True)
class DescribedFile:
    """Result of `read_description`; `print` shows it."""

    path: Path
    size_bytes: int
    signatures: dict[str, Signature]  # by name, the one that runs by default first
    num_subgraphs: int  # one per signature, and those that control flow calls
    description: Description
    min_runtime: str  # TensorFlow's version, such as "2.17.0"; "" if the file does not state it

    @property
    def mediapipe_task(self) -> str | None:
        """The task of MediaPipe that reads such an output; None for an attention map."""
        (output, *_) = next(iter(self.signatures.values())).outputs
        return MEDIAPIPE_TASKS.get(output.name, "ImageClassifier")

    @property
    def mediapipe_problem(self) -> str | None:
        """Why MediaPipe's ImageClassifier and ImageEmbedder (1.2.2) reject the file; None if they do not."""
        if self.description == UNDESCRIBED:
            return "it has no metadata; keras_vit.export.with_metadata adds it"
        inputs = next(iter(self.signatures.values())).inputs
        if self.num_subgraphs > 1:
            return f"it supports one subgraph, this file has {self.num_subgraphs}; export that signature alone"
        one_image = len(inputs) == 1 and len(inputs[0].shape) == 4 and inputs[0].shape[0] == 1
        if not one_image or inputs[0].dtype not in ("float32", "uint8"):
            received = ", ".join(map(str, inputs)) or "no input"
            return f"it requires one input image, float32 or uint8; this file has {received}"
        if inputs[0].shape[3] != 3:
            return "it takes RGB images, this file gray ones"
        if inputs[0].dtype == "float32" and max(len(set(self.description.mean)), len(set(self.description.std))) > 1:
            return "it scales all channels alike; move the scaling into the model"
        return None

    def __str__(self):
        about = self.description
        lines = [f"{self.path.name}: {self.size_bytes / 1e6:.2f} MB"]
        for name in ("name", "description", "version", "author", "license"):
            lines += [f"  {name:<14} {getattr(about, name)}"] if getattr(about, name) else []
        if self.min_runtime:
            litert = f", LiteRT {LITERT[self.min_runtime]}" if self.min_runtime in LITERT else ""
            lines.append(f"  runtime        TensorFlow {self.min_runtime}{litert}, or newer")
        for key, signature in self.signatures.items():
            lines.append(f"  signature      {key or '(unnamed)'}")
            lines += [f"    input        {tensor}" for tensor in signature.inputs]
            lines += [f"    output       {tensor}" for tensor in signature.outputs]
        if about != UNDESCRIBED:
            first = next(iter(self.signatures.values())).inputs[0]
            mean, std = (", ".join(f"{value:.6g}" for value in values) for values in (about.mean, about.std))
            scaling = f"; the app feeds (pixel - [{mean}]) / [{std}]" if any(about.mean) or {*about.std} != {1} else ""
            lines.append(f"  pixels         {'RGB' if first.shape[-1] == 3 else 'gray'} in [0, 255]{scaling}")
        if about.class_names is None:
            lines.append("  class names    none")
        else:
            shown = "; ".join(about.class_names[:5]) + ("; ..." if len(about.class_names) > 5 else "")
            lines.append(f"  class names    {len(about.class_names)}: {shown}")
        problem, task = self.mediapipe_problem, self.mediapipe_task
        support = f"supported by {task}" if problem is None else f"not supported by {task}: {problem}"
        support = support if task else "no task reads attention maps"
        lines.append(f"  MediaPipe      {support}")
        lines += [f"  preprocessing  {key}: {value}" for key, value in about.preprocessing.items()]
        return "\n".join(lines)
