"""Classifiers around random networks that are none of ours, and files of them without keras_vit's passes."""

import tempfile

import keras
import numpy as np
import tensorflow as tf
from keras import layers as L
from keras import ops
from litert_quantizer import quantizer, recipe

import keras_vit

ACTIVATIONS = """relu relu6 leaky_relu elu selu celu gelu silu mish hard_silu hard_sigmoid softplus softsign tanh
    sigmoid hard_tanh tanh_shrink soft_shrink hard_shrink exponential log_sigmoid squareplus sparse_plus
    sparse_sigmoid softmax log_softmax sparsemax""".split()
# Of operations that the rewrites make, and of layers that they know.
NAMES = """norm_attention embedding weigh_values rotate_back squares_of_groups rounding_error carried_error attention
    normalized_error patch_embedding head head_distillation softmax_times moments block_0 mlp logits images""".split()
CALIBRATION, TESTED = 40, 24
INTEGERS = {
    "int8": tf.lite.OpsSet.TFLITE_BUILTINS_INT8,
    "int16x8": tf.lite.OpsSet.EXPERIMENTAL_TFLITE_BUILTINS_ACTIVATIONS_INT16_WEIGHTS_INT8,
}


@keras.saving.register_keras_serializable(package="foreign")
class Own(keras.layers.Layer):
    """A function of `keras.ops`, as users write them."""

    def __init__(self, kind, **kwargs):
        super().__init__(**kwargs)
        self.kind = kind

    def call(self, x):
        return FUNCTIONS[self.kind](x)

    def compute_output_shape(self, shape):
        return shape

    def get_config(self):
        return {**super().get_config(), "kind": self.kind}


def _norm(x, axes, root=ops.rsqrt):
    centered = x - ops.mean(x, axes, keepdims=True)
    return centered * root(ops.mean(centered * centered, axes, keepdims=True) + 1e-3)


def _softmax(x):
    exponentials = ops.exp(x - ops.max(x, axis=-1, keepdims=True))
    return x * exponentials / ops.sum(exponentials, axis=-1, keepdims=True)


def _moments(x, axes):
    mean, variance = ops.moments(x, axes, keepdims=True)
    return (x - mean) / ops.sqrt(variance + 1e-3)


def _attention(x):
    """Of tokens with themselves, by hand."""
    tokens = ops.reshape(x, (-1, x.shape[1] * x.shape[2], x.shape[3]))
    logits = ops.matmul(tokens, ops.transpose(tokens, (0, 2, 1))) / x.shape[3] ** 0.5
    weights = ops.exp(logits - ops.max(logits, axis=-1, keepdims=True))
    mixed = ops.matmul(weights / ops.sum(weights, axis=-1, keepdims=True), tokens)
    return x + ops.reshape(mixed, (-1, *x.shape[1:]))


FUNCTIONS = {
    "own layer norm": lambda x: _norm(x, -1),
    "own instance norm": lambda x: _norm(x, (1, 2)),
    "own norm of maps": lambda x: _norm(x, (1, 2, 3), lambda variance: 1 / ops.sqrt(variance)),
    "own moments": lambda x: _moments(x, (1, 2, 3)),
    "own softmax": _softmax,
    "elu of x - max": lambda x: x + ops.elu(x - ops.max(x, axis=-1, keepdims=True)),
    "elu + 1": lambda x: ops.elu(x) + 1,
    "divided by the largest": lambda x: x / (ops.max(ops.abs(x), axis=-1, keepdims=True) + 1),
    "own gelu": lambda x: 0.5 * x * (1 + ops.tanh(0.7978845608 * (x + 0.044715 * x**3))),
    "own erf gelu": lambda x: 0.5 * x * (1 + ops.erf(x / 2**0.5)),
    "x + gelu(x)": lambda x: x + ops.gelu(x),
    "x + elu(x)": lambda x: x + ops.elu(x),
    "x + relu6(x)": lambda x: x + ops.relu6(x),
    "glu": lambda x: ops.glu(ops.concatenate([x, x + 0.5], -1)),
    "squares": lambda x: x * x / (1 + ops.abs(x)),
    "attention": _attention,
    "reshapes": lambda x: ops.reshape(ops.reshape(x, (-1, x.shape[1] * x.shape[2], x.shape[3])), (-1, *x.shape[1:])),
    "split": lambda x: ops.concatenate([ops.abs(half) for half in ops.split(x, 2, axis=-1)][::-1], -1),
}
OWN_NORMS = [kind for kind in FUNCTIONS if "norm" in kind or "moments" in kind]
NORMS = {
    "batch": L.BatchNormalization,
    "layer": L.LayerNormalization,
    "layer, axes": lambda **kwargs: L.LayerNormalization(axis=(1, 2, 3), **kwargs),
    "layer, plain": lambda **kwargs: L.LayerNormalization(center=False, scale=False, **kwargs),
    "group": lambda **kwargs: L.GroupNormalization(4, **kwargs),
    "instance": lambda **kwargs: L.GroupNormalization(-1, **kwargs),
    "rms": L.RMSNormalization,
    "unit": L.UnitNormalization,
}
POOLINGS = {
    "max": lambda x: L.MaxPooling2D(3, 2, "same")(x),
    "average": lambda x: L.AveragePooling2D(2)(x),
    "stride": lambda x: L.Conv2D(x.shape[-1], 2, 2)(x),  # of patches, whose last row an odd height omits
    "stride, padded": lambda x: L.Conv2D(x.shape[-1], 2, 2, "same")(x),
    "stride of 3": lambda x: L.Conv2D(x.shape[-1], 3, 2, "same")(x),
}


def _excite(x):
    squeezed = L.Dense(4, "relu")(L.GlobalAveragePooling2D(keepdims=True)(x))
    return L.Multiply()([x, L.Dense(x.shape[-1], "sigmoid")(squeezed)])


def _twice(x):
    dense = L.Dense(x.shape[-1])
    return L.Add()([dense(x), dense(L.ReLU()(x))])


def _off(x):
    """A branch that is always off, and a pruned layer."""
    off = L.ReLU()(L.Activation("log_sigmoid")(x))
    pruned = L.Conv2D(x.shape[-1], 1, kernel_initializer="zeros")(x)
    return L.Add()([x, L.Conv2D(x.shape[-1], 1)(off), pruned])


def _heads(x):
    tokens = L.Reshape((-1, x.shape[-1]))(x)
    return L.Add()([x, L.Reshape(x.shape[1:])(L.MultiHeadAttention(2, 8)(tokens, tokens))])


BRANCHES = {
    "residual": lambda x: L.Add()([x, L.Conv2D(x.shape[-1], 3, padding="same")(x)]),
    "concatenation": lambda x: L.Concatenate()([x, L.Conv2D(8, 1)(x), L.MaxPooling2D(3, 1, "same")(x)]),
    "difference": lambda x: L.Subtract()([L.Conv2D(x.shape[-1], 1)(x), x]),
    "maximum": lambda x: L.Maximum()([L.Conv2D(x.shape[-1], 1)(x), x]),
    "squeeze and excite": _excite,
    "shared dense": _twice,
    "heads": _heads,
    "off": _off,
    "depthwise": lambda x: L.DepthwiseConv2D(3, padding="same")(x),
    "dilated": lambda x: L.Conv2D(x.shape[-1], 3, padding="same", dilation_rate=2)(x),
    "separable": lambda x: L.SeparableConv2D(x.shape[-1], 3, padding="same")(x),
    "transposed": lambda x: L.AveragePooling2D(2)(L.Conv2DTranspose(x.shape[-1], 2, 2)(x)),
    "upsampled": lambda x: L.MaxPooling2D(2)(L.UpSampling2D(2, interpolation="bilinear")(x)),
    "grouped": lambda x: L.Conv2D(x.shape[-1], 3, padding="same", groups=2)(x),
}
ENDS = {
    "map": lambda x: x,
    "tokens": lambda x: L.Reshape((-1, x.shape[-1]))(x),
    "average": lambda x: L.GlobalAveragePooling2D()(x),
    "max": lambda x: L.GlobalMaxPooling2D()(x),
    "flat": lambda x: L.Flatten()(L.Conv2D(4, 1)(x)),
    "dense": lambda x: L.Dense(24, "elu")(L.GlobalMaxPooling2D()(x)),
}
STEMS = {
    "patches": lambda x: L.Conv2D(16, 4, 4)(x),
    "overlapping": lambda x: L.Conv2D(16, 3, 2, "same")(x),
    "two": lambda x: L.Concatenate()(
        [L.Conv2D(8, 3, 2, "same")(x), L.MaxPooling2D(3, 2, "same")(x), L.Conv2D(5, 2, 2, "same")(x)]
    ),
}


def random_network(seed: int):
    """A classifier around a random network, and the kinds of its layers as text."""
    random = np.random.default_rng(seed)
    keras.utils.set_random_seed(seed)
    names = list(random.permutation(NAMES))
    size = int(random.integers(20, 36))
    used = [f"{size} px"]

    def choose(kinds):
        used.append(kind := str(random.choice(list(kinds))))
        return kind

    def name():
        return {"name": names.pop()} if random.random() < 0.5 and names else {}

    x = inputs = keras.Input((size, size, 3))
    x = STEMS[choose(STEMS)](x)
    for _ in range(random.integers(1, 3)):
        kinds = [
            lambda x: NORMS[choose(NORMS)](**name())(x),
            lambda x: Own(choose(FUNCTIONS), **name())(x) if x.shape[-1] % 2 == 0 else x,
            lambda x: BRANCHES[choose(BRANCHES)](x),
            lambda x: L.Activation(choose(ACTIVATIONS), **name())(x),
        ]
        for i in random.permutation(4)[: random.integers(2, 4)]:
            x = kinds[i](x) if x.shape[-1] % 4 == 0 or i else L.Conv2D(16, 1)(x)
        if x.shape[1] > 7:
            x = POOLINGS[choose(POOLINGS)](x)
    x = ENDS[choose(ENDS)](x)
    return classifier(keras.Model(inputs, x), choose(("half", "imagenet")), random), ", ".join(used)


def classifier(backbone, preprocessing="half", random=None):
    """An `ImageClassifier` of 5 classes whose logits differ between images, of random weights and statistics."""
    random = random or np.random.default_rng(0)
    model = keras_vit.ImageClassifier(backbone, num_classes=5, preprocessing=preprocessing)
    inputs = model.preprocess(images(model)[:CALIBRATION])
    for weight in model.backbone.weights:
        if weight.dtype == "float32" and len(weight.shape) == 1:
            weight.assign(weight + 0.2 * random.standard_normal(weight.shape))
    for layer in model.backbone._flatten_layers():
        if isinstance(layer, L.BatchNormalization):
            layer.momentum = 0.0
    model.backbone(inputs, training=True)  # statistics of a trained network
    features = model.features(inputs).numpy()
    mean, deviation = features.mean(axis=0), features.std(axis=0) + 1e-3 * np.abs(features).max() + 1e-6
    kernel = random.standard_normal((len(mean), 5)) / deviation[:, None] * 3 / len(mean) ** 0.5
    model.head.kernel.assign(kernel)
    model.head.bias.assign(-mean @ kernel)
    return model


def images(model):
    """Smooth images of the model's size, whole numbers in [0, 255], float32."""
    random = np.random.default_rng(5)
    coarse = random.uniform(0, 255, (CALIBRATION + TESTED, 4, 4, 3))
    contrast, brightness = random.uniform(0.2, 1.2, (2, len(coarse), 1, 1, 1))
    smooth = tf.image.resize((coarse - 128) * contrast + 128 * brightness, model.image_size, "bicubic").numpy()
    return np.clip(np.round(smooth), 0, 255)


def error(probabilities, expected):
    """Of the probabilities, relative to how much those of the images differ."""
    expected = np.asarray(expected)
    return float(np.linalg.norm(probabilities - expected) / np.linalg.norm(expected - expected.mean(axis=0)))


def quantized_plainly(model, name, calibration) -> bytes:
    """A file by Keras's exporter, TensorFlow's converter, and its quantizer, which has no 4 bits, or LiteRT's."""
    mean, std = (np.array(values, "float32") for values in (model.preprocessing.mean, model.preprocessing.std))
    archive = keras.export.ExportArchive()
    archive.track(model)
    archive.add_endpoint(
        "classify",
        lambda images: {"probabilities": tf.nn.softmax(model((images / 255 - mean) / std))},
        input_signature=[tf.TensorSpec((1, *model.image_size, 3), tf.float32, name="images")],
    )
    with tempfile.TemporaryDirectory() as folder:
        archive.write_out(folder, verbose=False)
        converter = tf.lite.TFLiteConverter.from_saved_model(folder, signature_keys=["classify"])
        if name in INTEGERS:
            converter.optimizations = [tf.lite.Optimize.DEFAULT]
            converter.target_spec.supported_ops = [INTEGERS[name], tf.lite.OpsSet.TFLITE_BUILTINS]
            converter.representative_dataset = lambda: (("classify", {"images": image[None]}) for image in calibration)
        content = converter.convert()
    if name in INTEGERS:
        return content
    work = quantizer.Quantizer(bytearray(content))
    work.load_quantization_recipe({"int4-weights": recipe.dynamic_wi4_afp32}.get(name, recipe.dynamic_wi8_afp32)())
    return bytes(work.quantize(enable_progress_bar=False, enable_progress_report=False).quantized_model)
