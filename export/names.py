"""Names in exported files: signatures, their tensors, and the files of class names and preprocessing."""

INPUT = "images"
CLASSIFY, EMBED, ATTENTION = "classify", "embed", "attention"
LOGITS = "logits"
PROJECTION = "projection"  # of a SavedModel and an ONNX file; in a TFLite file it is the embedding
OUTPUTS = {CLASSIFY: "probabilities", EMBED: "embedding", ATTENTION: "attention"}
CLASS_NAMES_FILE = "labels.txt"  # as MediaPipe and the examples of TensorFlow name it
PREPROCESSING_FILE = "preprocessing.json"
