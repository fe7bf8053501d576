"""Runs MediaPipe Tasks on a .tflite file and images as an app does; prints the results as JSON.

    mediapipe_client.py classify model.tflite image.jpg ...   the five best [name, score] of each image
    mediapipe_client.py embed model.tflite image.jpg ...      the embedding of each image
    mediapipe_client.py metadata model.tflite                   the metadata as MediaPipe reads it
    mediapipe_client.py check                                   checks that MediaPipe's libraries load

Runs in .venv-mediapipe, which has MediaPipe but not keras_vit.
"""

import json
import sys

import mediapipe
import numpy as np
from mediapipe.tasks.metadata import metadata_schema_py_generated as metadata_schema
from mediapipe.tasks.metadata import schema_py_generated as schema
from mediapipe.tasks.python import BaseOptions, vision


def classify(model, images):
    options = vision.ImageClassifierOptions(base_options=BaseOptions(model_asset_path=model), max_results=5)
    with vision.ImageClassifier.create_from_options(options) as classifier:
        results = [classifier.classify(mediapipe.Image.create_from_file(image)) for image in images]
    return [
        [[category.category_name, category.score] for category in result.classifications[0].categories]
        for result in results
    ]


def embed(model, images):
    options = vision.ImageEmbedderOptions(base_options=BaseOptions(model_asset_path=model))
    with vision.ImageEmbedder.create_from_options(options) as embedder:
        results = [embedder.embed(mediapipe.Image.create_from_file(image)) for image in images]
    return [np.asarray(result.embeddings[0].embedding, float).tolist() for result in results]


def metadata(model):
    with open(model, "rb") as file:
        packed = schema.ModelT.InitFromObj(schema.Model.GetRootAs(file.read()))
    (buffer,) = [entry.buffer for entry in packed.metadata if entry.name == b"TFLITE_METADATA"]
    found = metadata_schema.ModelMetadata.GetRootAs(packed.buffers[buffer].data.tobytes())
    return plain(metadata_schema.ModelMetadataT.InitFromObj(found))


def plain(value):
    """Generated objects as JSON values, without unset fields."""
    if isinstance(value, bytes):
        return value.decode()
    if isinstance(value, np.ndarray | list):
        return [plain(item) for item in value]
    if hasattr(value, "__dict__"):
        return {key: plain(item) for key, item in vars(value).items() if item is not None}
    return value.item() if isinstance(value, np.generic) else value


def check():
    mediapipe.Image(image_format=mediapipe.ImageFormat.SRGB, data=np.zeros((8, 8, 3), "uint8"))
    return mediapipe.__version__


if __name__ == "__main__":
    task, *arguments = sys.argv[1:]
    if task == "check":
        print(check())
    elif task == "metadata":
        print(json.dumps(metadata(*arguments)))
    else:
        print(json.dumps({"classify": classify, "embed": embed}[task](arguments[0], arguments[1:])))
