"""BiT ResNets: .npz files of google-research/big_vision (two forms) and of google-research/big_transfer."""

from keras_vit.weights.checkpoint import Checkpoint
from keras_vit.weights.files import Tensors
from keras_vit.weights.naming import Naming, ResNetNaming, Source
from keras_vit.weights.sources.arrays import kernel_shape, read_arguments, resnet_stages
from keras_vit.weights.sources.jax import BIG_VISION_PREPROCESSING, LEAVES, RESNET, UNIT_LAYERS, linen_arrays


def _naming(resnet: ResNetNaming) -> Naming:
    # The layers are for `Naming.our_names`, which finds what to skip.
    return Naming({"head": (f"{resnet.layers['head']}/",)}, {}, {}, "heads", resnet)


# models/bit.py of big_vision.
BIT_V1 = Source("bit_v1", "google-research/big_vision, BiT v1", _naming(RESNET), preprocessing=BIG_VISION_PREPROCESSING)
# models/bit_paper.py of big_vision.
BIT_PAPER = Source(
    "bit_paper",
    "google-research/big_vision, BiT",
    _naming(
        ResNetNaming(
            {"root/conv_root": "root_block/conv_root", "norm": "norm-pre-head", "head": "head"},
            UNIT_LAYERS,
            "block{block}/unit{unit:02d}/{layer}",
            leaves=LEAVES,
        )
    ),
    preprocessing=BIG_VISION_PREPROCESSING,
)
# The files at gs://bit_models: a normalization and the convolution after it are the parts a, b and c of a unit.
BIT_MODELS = Source(
    "bit_models",
    "google-research/big_transfer",
    _naming(
        ResNetNaming(
            {
                "root/conv_root": "resnet/root_block/standardized_conv2d",
                "norm": "resnet/group_norm",
                "head": "resnet/head/conv2d",
            },
            {
                "conv1": "a/standardized_conv2d",
                "gn1": "a/group_norm",
                "conv2": "b/standardized_conv2d",
                "gn2": "b/group_norm",
                "conv3": "c/standardized_conv2d",
                "gn3": "c/group_norm",
                "conv_proj": "a/proj/standardized_conv2d",
            },
            "resnet/block{block}/unit{unit:02d}/{layer}",
        )
    ),
)


def recognizes(tensors: Tensors) -> bool:
    """Whether a file holds a BiT."""
    names = linen_arrays(tensors).shapes
    return any(name.endswith("conv_root/kernel") or "root_block/" in name for name in names)


def read(tensors: Tensors, image_size) -> Checkpoint:
    """The checkpoint in a file. `image_size` is ignored."""
    tensors = linen_arrays(tensors)
    if _root(BIT_MODELS) in tensors:
        source = BIT_MODELS
    else:
        source = BIT_PAPER if _root(BIT_PAPER) in tensors else BIT_V1
    return Checkpoint(tensors, source, read_arguments(_arguments, tensors, source), {})


def _root(source):
    return source.naming.resnet.name("root/conv_root/kernel")


def _arguments(tensors, source):
    shapes, root = tensors.shapes, _root(source)
    return {
        "stages": resnet_stages(shapes, root),
        "width_factor": kernel_shape(tensors, root)[3] // 64,
        "num_classes": shapes.get(source.naming.resnet.name("head/bias"), (0,))[0],
        "form": "v1" if source is BIT_V1 else "paper",
        "pool_padding": "edge" if source is BIT_PAPER else "zeros",
    }
