"""Exported classifiers as clients run them: .tflite, .onnx files and SavedModels. n images, C classes, H W pixels.

Keras is not imported, and TensorFlow for a SavedModel only: the others answer within a second.
"""

import importlib
import json
from collections.abc import Callable, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from keras_vit.atomic_write import literal_folder
from keras_vit.class_names import SIGMOID_CLASSES, as_probabilities, names_of_outputs, top_classes
from keras_vit.export.names import CLASS_NAMES_FILE, CLASSIFY, INPUT, LOGITS, OUTPUTS, PREPROCESSING_FILE
from keras_vit.images.pixel_range import scaled, warn_if_assumed
from keras_vit.images.preprocessing import Preprocessing
from keras_vit.images.resizing import resized
from keras_vit.messages import first_names

SMALLEST = 1e-7  # probability: those of integer files are rounded, to 0, too
ONNX_DTYPES = {"tensor(float)": "float32", "tensor(float16)": "float16", "tensor(uint8)": "uint8"}


@dataclass(frozen=True)
class ExportedClassifier:
    """A classifier of `write_tflite`, `write_onnx` or `write_saved_model`.

    Attributes:
        name: The file or folder.
        probabilities: A function from pixels in [0, 255] of the model's size, (n, H, W, 3) float32, to (n, C) float32.
        preprocessing: How images are prepared.
        class_names: The class of each output; None if the file has no names.
        num_classes: C.
        activation: "softmax" or "sigmoid", see `keras_vit.models.classification.output_activation`.
    """

    name: str
    probabilities: Callable
    preprocessing: Preprocessing
    class_names: tuple[str, ...] | None
    num_classes: int
    activation: str

    @property
    def multi_label(self) -> bool:
        """Whether an image may have several of the classes."""
        return self.activation == "sigmoid" and self.num_classes not in SIGMOID_CLASSES

    def classify(self, images, top: int = 5) -> list[list[tuple[str, float]]]:
        """As `keras_vit.classify`."""
        names = self.class_names or [f"class {i}" for i in range(self.num_classes)]
        return top_classes(self.probabilities(self._pixels(images)), names, top, activation=None)

    def logits(self, images, preprocessing: Preprocessing | None = None) -> np.ndarray:
        """Logits (n, C) of images, see `Preprocessing`, from the probabilities; of a softmax up to a constant."""
        probabilities = np.maximum(self.probabilities(self._pixels(images, preprocessing)), SMALLEST)
        is_sigmoid = self.activation == "sigmoid"
        return np.log(probabilities) - (np.log(np.maximum(1 - probabilities, SMALLEST)) if is_sigmoid else 0)

    def _pixels(self, images, preprocessing=None) -> np.ndarray:
        """(n, H, W, 3) float32 in [0, 255]."""
        return np.asarray(resized(images, preprocessing or self.preprocessing, by_products=True))


def open_exported(path) -> ExportedClassifier:
    """Opens a .tflite file, an .onnx file or the folder of a SavedModel.

    Raises:
        ValueError, OSError: It is no classifier, has no preprocessing, or cannot be read.
        ImportError: The runtime of this format is not installed.
    """
    path = Path(path)
    openers = {".tflite": _open_tflite, ".onnx": _open_onnx}
    with naming_damage(path):
        return openers.get(path.suffix, _open_saved_model)(path)


@contextmanager
def naming_damage(path):
    """Raises a ValueError that names the file or folder for errors of readers: each kind of damage has a class."""
    try:
        yield
    except (OSError, ImportError, MemoryError):
        raise
    except Exception as error:
        memory = type(error).__name__ == "ResourceExhaustedError"  # TensorFlow's, which may not be imported
        if memory or (isinstance(error, ValueError) and str(path) in str(error)):
            raise
        reason = str(error).strip().partition("\n")[0].rstrip(".") or type(error).__name__
        raise ValueError(f"{path} cannot be read: {reason}. Export or copy it again.") from error


def describe_exported(path) -> tuple[str, dict]:
    """What a .tflite file, an .onnx file or a SavedModel contains, as lines of text and as values for JSON.

    The values: "size_bytes", "signatures" (name -> {"inputs": texts, "outputs": texts}), "class_names" (None if there
    are none) and "preprocessing" (the fields of `Preprocessing`, or none).

    Raises:
        ValueError, OSError, ImportError: See `open_exported`.
    """
    path = Path(path)
    with naming_damage(path):
        return _describe(path)


def _describe(path):
    tensors: dict[str, Sequence]  # by signature: inputs and outputs
    if path.suffix == ".tflite":
        from keras_vit.export.tflite.metadata import read_description

        described = read_description(path)
        tensors = {name: (signature.inputs, signature.outputs) for name, signature in described.signatures.items()}
        about = {"class_names": described.description.class_names, "preprocessing": described.description.preprocessing}
        return str(described), _fields(described.size_bytes, tensors, **about)
    if path.suffix == ".onnx":
        session = onnx_session(path)
        about, size = _onnx_metadata(session), path.stat().st_size
        sides = session.get_inputs(), session.get_outputs()
        tensors = {"": [[f"{tensor.name} {tensor.shape} {tensor.type}" for tensor in side] for side in sides]}
    else:
        about, size = _assets(path), sum(file.stat().st_size for file in path.rglob("*") if file.is_file())
        tensors = {
            name: (
                [
                    f"{spec.name} {spec.shape} {spec.dtype.name}"
                    for spec in function.structured_input_signature[1].values()
                ],
                [f"{key} {spec.shape} {spec.dtype.name}" for key, spec in function.structured_outputs.items()],
            )
            for name, function in _load_saved_model(path).signatures.items()
        }
    fields = _fields(size, tensors, about["class_names"], about["preprocessing"])
    lines = [f"{path.name}: {size / 1e6:.2f} MB"]
    for name, signature in fields["signatures"].items():
        lines += [f"  signature      {name}"] if name else []
        lines += [f"    {side[:-1]:<12} {text}" for side, texts in signature.items() for text in texts]
    names = fields["class_names"]
    lines.append(f"  class names    {f'{len(names)}: {first_names(names)}' if names else 'none'}")
    lines += [f"  preprocessing  {name}: {value}" for name, value in (fields["preprocessing"] or {}).items()]
    return "\n".join(lines), fields


def _fields(size_bytes, tensors, class_names, preprocessing) -> dict:
    signatures = {
        name: {"inputs": list(map(str, inputs)), "outputs": list(map(str, outputs))}
        for name, (inputs, outputs) in tensors.items()
    }
    names = None if class_names is None else list(class_names)
    fields = {"size_bytes": size_bytes, "signatures": signatures, "class_names": names}
    return fields | {"preprocessing": preprocessing or {}}


def onnx_session(path):
    """A session of onnxruntime on the CPU."""
    try:
        runtime = importlib.import_module("onnxruntime")
    except ImportError as error:
        raise ImportError(f"ONNX files require onnxruntime: pip install 'vit-for-keras[onnx]' ({error}).") from error
    with naming_damage(path):
        return runtime.InferenceSession(str(path), providers=["CPUExecutionProvider"])


def _open_tflite(path):
    from keras_vit.export.tflite.graph import read_graph, run_tflite
    from keras_vit.export.tflite.metadata import read_description

    described = read_description(path)
    preprocessing = _preprocessing(described.description.preprocessing, path)
    if CLASSIFY not in described.signatures:
        raise _no_classifier(path, f"the signature {CLASSIFY!r}")
    signature = described.signatures[CLASSIFY]
    ends = [step.name for step in read_graph(path) if step.subgraph == signature.subgraph]
    last = next((name for name in reversed(ends) if name not in ("QUANTIZE", "DEQUANTIZE", "RESHAPE")), "")

    def probabilities(pixels):
        return run_tflite(path, pixels)[0]

    activation = {"SOFTMAX": "softmax", "LOGISTIC": "sigmoid"}.get(last) or _activation(
        probabilities(_gray(preprocessing))
    )
    num_classes = signature.outputs[0].shape[-1]
    return _classifier(path, probabilities, preprocessing, described.description.class_names, num_classes, activation)


def _open_onnx(path):
    session = onnx_session(path)
    about = _onnx_metadata(session)
    preprocessing, activation = _preprocessing(about["preprocessing"], path), about["activation"]
    [image], [output] = session.get_inputs(), session.get_outputs()
    if not activation and output.name != OUTPUTS[CLASSIFY]:
        raise _no_classifier(path, "logits and their activation, or probabilities")
    dtype = ONNX_DTYPES[image.type]

    def probabilities(pixels):
        inputs = np.rint(pixels) if dtype == "uint8" else scaled(pixels, preprocessing)
        logits = session.run([output.name], {image.name: inputs.astype(dtype)})[0]
        return as_probabilities(logits.astype("float32"), activation)

    kind = activation or _activation(probabilities(_gray(preprocessing)))
    return _classifier(path, probabilities, preprocessing, about["class_names"], output.shape[-1], kind)


def _gray(preprocessing):
    return np.full((1, *preprocessing.image_size, preprocessing.channels), 128.0, "float32")


def _activation(probabilities) -> str:
    return "softmax" if np.allclose(probabilities.sum(-1), 1, atol=1e-2) else "sigmoid"


def _onnx_metadata(session) -> dict:
    about = session.get_modelmeta().custom_metadata_map
    names = about.get("class_names")
    try:
        preprocessing = json.loads(about.get("preprocessing", "{}"))
    except ValueError:  # another program's
        preprocessing = {}
    return {
        "preprocessing": preprocessing,
        "class_names": names.splitlines() if names else None,
        "activation": about.get("activation"),
    }


def _open_saved_model(folder):
    about = _assets(folder)
    preprocessing = _preprocessing(about["preprocessing"], folder)
    loaded = _load_saved_model(folder)  # its variables live only as long as this object
    import tensorflow as tf

    if CLASSIFY not in loaded.signatures:
        raise _no_classifier(folder, f"the signature {CLASSIFY!r}")

    def run(pixels, signature, output):
        return loaded.signatures[signature](**{INPUT: tf.constant(scaled(pixels, preprocessing))})[output].numpy()

    gray = _gray(preprocessing)
    expected = run(gray, CLASSIFY, OUTPUTS[CLASSIFY])
    activation = _activation(expected)
    if LOGITS in loaded.signatures:
        rows = {name: as_probabilities(run(gray, LOGITS, LOGITS), name) for name in ("softmax", "sigmoid")}
        activation = min(rows, key=lambda name: np.abs(rows[name] - expected).max())
    return _classifier(
        folder,
        lambda pixels: run(pixels, CLASSIFY, OUTPUTS[CLASSIFY]),
        preprocessing,
        about["class_names"],
        expected.shape[-1],
        activation,
    )


def _assets(folder) -> dict:
    file, labels = folder / "assets.extra" / PREPROCESSING_FILE, folder / "assets" / CLASS_NAMES_FILE
    return {
        "preprocessing": json.loads(file.read_text("utf-8")) if file.is_file() else {},
        "class_names": labels.read_text("utf-8").splitlines() if labels.is_file() else None,
    }


def _load_saved_model(folder):
    import tensorflow as tf

    with literal_folder(folder) as literal:
        return tf.saved_model.load(literal)


def _classifier(path, probabilities, preprocessing, class_names, num_classes, activation):
    names = names_of_outputs(class_names, num_classes)

    def named_probabilities(pixels):
        with naming_damage(path):
            return probabilities(pixels)

    return ExportedClassifier(str(path), named_probabilities, preprocessing, names, num_classes, activation)


def stated_preprocessing(config, path) -> Preprocessing:
    """The preprocessing that a file states; `path` names it in the error if it states none."""
    if not config:
        raise ValueError(
            f"{path} does not state how images are prepared. Expected a file of `keras-vit export` or keras_vit.export."
        )
    return Preprocessing.from_config(config, path)


def _preprocessing(config, path) -> Preprocessing:
    preprocessing = stated_preprocessing(config, path)
    warn_if_assumed(path, preprocessing)
    return preprocessing


def _no_classifier(path, expected) -> ValueError:
    return ValueError(f"{path} is no classifier. Expected a file with {expected}.")
