"""The TFLite files that the page classifies with."""

import json

import keras
import numpy as np
import tensorflow as tf
from scenes import scene


def convert(model, folder):
    """Writes float32.tflite and int8.tflite with both signatures on pixels in [0, 255], and preprocessing.json."""

    def classify(pixels):
        return {"probabilities": tf.nn.softmax(model(pixels / 127.5 - 1, training=False))}

    def attention(pixels):
        maps = tf.reduce_mean(model.attention_maps(pixels / 127.5 - 1), 2) + tf.eye(25)
        maps /= tf.reduce_sum(maps, -1, keepdims=True)
        row = (maps[:, 1] @ maps[:, 0])[:, 0, 1:]
        return {"attention": tf.reshape(row / tf.reduce_max(row, -1, keepdims=True), (1, 4, 6))}

    archive = keras.export.ExportArchive()
    archive.track(model)
    spec = tf.TensorSpec((1, 32, 48, 3), tf.float32, name="images")
    for function in (classify, attention):
        archive.add_endpoint(function.__name__, function, input_signature=[spec])
    archive.write_out(folder, verbose=False)
    names = ["classify", "attention"]
    converter = tf.lite.TFLiteConverter.from_saved_model(str(folder), signature_keys=names)
    (folder / "float32.tflite").write_bytes(converter.convert())
    images = [np.asarray(scene(i, (48, 32)), "float32")[None] for i in range(100, 120)]
    converter.optimizations = [tf.lite.Optimize.DEFAULT]
    converter.representative_dataset = lambda: ((name, {"images": p}) for name in names for p in images)
    converter.target_spec.supported_ops = [tf.lite.OpsSet.TFLITE_BUILTINS_INT8]
    converter.inference_input_type = converter.inference_output_type = tf.uint8
    (folder / "int8.tflite").write_bytes(converter.convert())
    (folder / "preprocessing.json").write_text(json.dumps(model.preprocessing.get_config()))
