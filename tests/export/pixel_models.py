"""A classifier with random weights, and .tflite files of it by TensorFlow's converter, without keras_vit's export."""

import keras
import tensorflow as tf
from randomize import randomize

import keras_vit

SIZE, CLASSES = (32, 40), 10  # height and width differ, so that swapping them fails


def random_classifier():
    """Its probabilities differ clearly between images."""
    keras.utils.set_random_seed(3)
    model = keras_vit.VisionTransformer(
        image_size=SIZE, patch_size=8, depth=1, width=32, mlp_dim=64, num_heads=2, num_classes=CLASSES
    )
    return randomize(model, 0.15, seed=3)


def signature_functions(model):
    """Signature -> function of `images`, (1, H, W, 3) float32 in [0, 255]."""
    return {
        "classify": lambda images: {"probabilities": tf.nn.softmax(model(images / 127.5 - 1.0, training=False))},
        "embed": lambda images: {"embedding": model.features(images / 127.5 - 1.0)},
    }


def converted(model, functions, folder, calibration=None, **settings):
    """The bytes of a .tflite file with these signatures; with calibration images, full int8 with uint8 interfaces."""
    archive = keras.export.ExportArchive()
    if model is not None:
        archive.track(model)
    for name, function in functions.items():
        archive.add_endpoint(name, function, input_signature=[tf.TensorSpec((1, *SIZE, 3), tf.float32, name="images")])
    archive.write_out(folder, verbose=False)
    converter = tf.lite.TFLiteConverter.from_saved_model(str(folder), signature_keys=list(functions))
    for name, value in settings.items():
        setattr(converter, name, value)
    if calibration is not None:
        (name,) = functions
        converter.optimizations = [tf.lite.Optimize.DEFAULT]
        converter.target_spec.supported_ops = [tf.lite.OpsSet.TFLITE_BUILTINS_INT8]
        converter.representative_dataset = lambda: ((name, {"images": image[None]}) for image in calibration)
        converter.inference_input_type = converter.inference_output_type = tf.uint8
    return converter.convert()
