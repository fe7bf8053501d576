"""Vision Transformers of tf-models-official: TensorFlow checkpoints and models in memory."""

from pathlib import Path

from keras_vit.images.pixel_range import IMAGENET
from keras_vit.weights.checkpoint import Checkpoint
from keras_vit.weights.files import DAMAGED_HINT, Tensors, checked
from keras_vit.weights.naming import Source
from keras_vit.weights.sources.arrays import respell
from keras_vit.weights.sources.keras_attention import NAMING, by_table_name, model_arguments, model_tensors, table_shape

MODEL_GARDEN = Source(
    "model_garden",
    "tf-models-official",
    NAMING,
    gelu="tanh",
    epsilon=1e-6,
    resample="half_pixel",
    preprocessing={"resize": "shortest", "crop_fraction": 0.875, **IMAGENET},
)
# Paths in a checkpoint, and names of the variables of a model in memory.
SPELLING = (
    (r"/\.ATTRIBUTES/VARIABLE_VALUE$", ""),
    (r":0$", ""),
    (r"^(model/)?backbone/", ""),
    (r"^model/layer_with_weights-0/", ""),
    (r"^model/layer_with_weights-1/", "head/"),
    (r"^layer_with_weights-0/", "patch_embedding/"),
    (r"^conv2d(_\d+)?/", "patch_embedding/"),
    (r"^dense(_\d+)?/", "head/"),
    (r"^(?:layer_with_weights-1|cls(?:_\d+)?)/cls$", "class_token"),
    (r"^(layer_with_weights-\d|encoder(_\d+)?)/(_pos_embed|posembed_input)/pos_embedding$", "positions"),
    (r"^layer_with_weights-\d/_encoder_layers/(\d+)/", r"block\1/"),
    (r"^encoder(?:_\d+)?/transformer_encoder_block(?:_(\d+))?/", lambda m: f"block{m[1] or 0}/"),
    (r"^(layer_with_weights-\d/_norm|encoder(_\d+)?/layer_normalization(_\d+)?)/", "norm/"),
    (r"^layer_with_weights-[23]/", "pre_logits/"),
    (r"/_?(attention|self_attention)_layer_norm/", "/layer_norm_1/"),
    (r"/(_output_layer_norm|output_layer_norm)/", "/layer_norm_2/"),
    (r"/(_attention_layer|self_attention)/", "/mha/"),
    (r"/mha/_?(query|key|value)(_dense)?/", r"/mha/\1/"),
    (r"/mha/(_output_dense|attention_output)/", "/mha/output/"),
    (r"/(_intermediate_dense|intermediate)/", "/mlp/dense_1/"),
    (r"^(block\d+)/(_output_dense|output)/", r"\1/mlp/dense_2/"),
    (r"/_?layer_scale_(attn|mlp)/layerscale_gamma$", r"/layer_scale_\1"),
)
# Starts of the keys of a checkpoint that are not weights of the model.
TRAINING_STATE = ("optimizer", "save_counter", "global_step", "_CHECKPOINTABLE", "step/")


def is_checkpoint(path: Path) -> bool:
    """Whether this is the prefix of a TensorFlow checkpoint, or its index file."""
    return path.suffix == ".index" or path.with_name(f"{path.name}.index").is_file()


def read_checkpoint(path: Path) -> Checkpoint:
    """The checkpoint in a TensorFlow checkpoint; `path` is its prefix or its index file."""
    prefix = Path(str(path).removesuffix(".index"))
    try:
        import tensorflow as tf
    except ModuleNotFoundError as error:
        raise ModuleNotFoundError(
            f"{prefix} is a TensorFlow checkpoint, which requires TensorFlow: pip install 'vit-for-keras[tensorflow]'"
        ) from error
    try:
        reader = tf.train.load_checkpoint(str(prefix))
        stored = reader.get_variable_to_shape_map()
    except (tf.errors.OpError, ValueError) as error:
        raise ValueError(f"{prefix} cannot be read as a TensorFlow checkpoint: {error}. {DAMAGED_HINT}") from error
    keys = [key for key in stored if not key.startswith(TRAINING_STATE) and "OPTIMIZER_SLOT" not in key]
    names = by_table_name(prefix, ((respell(key, SPELLING), key) for key in keys))
    shapes = {name: table_shape(name, tuple(stored[key])) for name, key in names.items()}

    def read(name):
        return checked(prefix, name, reader.get_tensor(names[name])).reshape(shapes[name])

    return _checkpoint(Tensors(prefix, shapes, read))


def read_model(model) -> Checkpoint:
    """A model in memory as a checkpoint; raises ValueError if it is not a Vision Transformer."""
    return _checkpoint(model_tensors(model, SPELLING))


def _checkpoint(tensors):
    return Checkpoint(tensors, MODEL_GARDEN, model_arguments(tensors, {}), {})
