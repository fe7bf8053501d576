"""Names in exported files: signatures, their tensors, and the files of class names and preprocessing."""

INPUT = "images"
CLASSIFY, EMBED, ATTENTION = "classify", "embed", "attention"
LOGITS = "logits"
PROJECTION = "projection"  # of a SavedModel and an ONNX file; in a TFLite file it is the embedding
OUTPUTS = {CLASSIFY: "probabilities", EMBED: "embedding", ATTENTION: "attention"}
CLASS_NAMES_FILE = "labels.txt"  # as MediaPipe and the examples of TensorFlow name it
PREPROCESSING_FILE = "preprocessing.json"
# Operations of a .tflite file that the passes over it look for. Only the rewrites write this prefix: the layers of any
# other network may have any name. None contains another.
_OURS = "keras_vit."
PATCHES, EMBEDDING, NORM, HEAD = (_OURS + name for name in ("patches", "embedding", "norm", "head"))
VALUES, EXPONENTIALS, RAMPS = (_OURS + name for name in ("weigh_values", "exponentials", "ramps"))
ATTENTION_PROJECTIONS, ROTATE_BACK, SQUARES = (_OURS + name for name in ("projections", "rotate_back", "squares"))
ROUNDING_ERROR, CARRIED_ERROR, NORMALIZED_ERROR = (
    f"{_OURS}{name}_error" for name in ("rounding", "carried", "normalized")
)
