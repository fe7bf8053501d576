"""A VisionTransformer as the files from which `from_pretrained` of transformers loads it."""

import json
import os
from collections.abc import Callable
from pathlib import Path

from keras_vit.images.preprocessing import Preprocessing
from keras_vit.weights.sources.arrays import array_dtype, check_values, named_arrays
from keras_vit.weights.sources.hugging_face import ASSUMED, HUGGING_FACE, MULTI_LABEL, PILLOW_FILTERS, REGRESSION

ACTIVATIONS = {"erf": "gelu", "tanh": "gelu_pytorch_tanh", "quick": "quick_gelu"}


def writers(model, path: Path, class_names=None) -> dict[Path, Callable[[Path], object]]:
    """The files of a VisionTransformer, each with the function that writes it: weights and two descriptions.

    Args:
        model: The model.
        path: The file of the weights.
        class_names: Names of the classes, for `id2label`; by default LABEL_0, LABEL_1, ..., as in transformers.
    """
    config = model.config
    check_values(
        model,
        "A file of transformers",
        position_embedding=("learned_1d",),
        pooling=("token", "none"),
        class_token=(True,),
        register_tokens=(0,) if config.distillation else (0, 1),
        position_placement=("stem",),
        prefix_positions=(True,),
        axial=(False,),
        resnet_stages=(None,),
        norm_after_pooling=(False,),
        norm_before_encoder=(False,),
        swiglu=(False,),
    )
    if config.num_classes:
        head_kinds = {"representation_size": (None,), "pooling": ("token",)}
        check_values(model, "A file of transformers with a head", **head_kinds)
    is_deit = config.distillation or config.register_tokens == 1
    kind, class_name = ("deit", "DeiT") if is_deit else ("vit", "ViT")
    head = "ForImageClassificationWithTeacher" if config.distillation else "ForImageClassification"
    architecture = class_name + (head if config.num_classes else "Model")
    names = class_names or [f"LABEL_{i}" for i in range(config.num_classes)]
    config_json = _config_json(model, names) | {"model_type": kind, "architectures": [architecture]}
    preprocessor = _preprocessor_config(model.preprocessing)

    def file_name(name):
        if name.startswith("classifier.") and config.distillation:
            return f"cls_{name}"
        if name.startswith(("classifier.", "distillation_classifier.", "pooler.")):
            return name
        return f"{kind}.{name}" if config.num_classes else name

    arrays = named_arrays(model, HUGGING_FACE.naming, file_name)

    def write_weights(file):
        from safetensors.numpy import save_file

        save_file(arrays, file, metadata={"format": "pt"})  # required by readers of transformers
        os.umask(umask := os.umask(0))
        file.chmod(0o666 & ~umask)  # as the other files; safetensors lets only the owner read

    return {
        path: write_weights,
        path.with_name("config.json"): lambda file: _write_json(file, config_json),
        path.with_name("preprocessor_config.json"): lambda file: _write_json(file, preprocessor),
    }


def _write_json(file, content):
    file.write_text(json.dumps(content, indent=2) + "\n", encoding="utf-8")


def _config_json(model, class_names) -> dict:
    config = model.config
    height, width = model.image_size
    if model.patch_size[0] != model.patch_size[1]:
        raise ValueError(f"A file of transformers cannot store patch_size={model.patch_size}, only square patches.")
    problem = MULTI_LABEL if config.multi_label else REGRESSION if config.projection else None
    labels = {str(i): name for i, name in enumerate(class_names)}
    return {
        "attention_probs_dropout_prob": config.attention_dropout,
        "encoder_stride": model.patch_size[0],
        "hidden_act": ACTIVATIONS[config.gelu],
        "hidden_dropout_prob": config.dropout,
        "hidden_size": config.width,
        "id2label": labels,
        "image_size": height if height == width else [height, width],
        "initializer_range": 0.02,
        "intermediate_size": config.mlp_dim,
        "label2id": {label: int(i) for i, label in labels.items()},
        "layer_norm_eps": config.epsilon,
        "num_attention_heads": config.num_heads,
        "num_channels": model.channels,
        "num_hidden_layers": config.depth,
        "patch_size": model.patch_size[0],
        "pooler_act": "tanh",
        "pooler_output_size": config.representation_size or config.width,
        **({"problem_type": problem} if problem and config.num_classes else {}),
        "qkv_bias": True,
        "torch_dtype": array_dtype(model),
    }


def _preprocessor_config(preprocessing: Preprocessing) -> dict:
    from keras_vit.images.resizing import size_before_crop

    height, width = preprocessing.image_size
    numbers = {name: number for number, name in PILLOW_FILTERS.items()}
    if preprocessing.interpolation not in numbers:
        raise ValueError(
            f"A file of transformers cannot store interpolation={preprocessing.interpolation!r}, only "
            f"{', '.join(numbers)}."
        )
    config = {
        "do_normalize": True,
        "do_rescale": True,
        "do_resize": True,
        "image_mean": list(preprocessing.mean),
        "image_processor_type": "ViTImageProcessor",
        "image_std": list(preprocessing.std),
        "resample": numbers[preprocessing.interpolation],
        "rescale_factor": 1 / 255,
        "size": {"height": height, "width": width},
    }
    if preprocessing.origin == "assumed":
        config[ASSUMED] = True
    # Transformers has no area resize; its bilinear one smooths too and is the nearest to it.
    shortest = preprocessing.resize != "squash"
    if shortest and height != width:
        raise ValueError(
            f"A file of transformers cannot store resize={preprocessing.resize!r} for images of {height} x {width} "
            "pixels, which are not square: transformers would pad them. Save the model as .keras, or use "
            "resize='squash'."
        )
    if preprocessing.crop_fraction < 1.0 or shortest:
        rows, columns = size_before_crop(preprocessing.image_size, preprocessing.crop_fraction)
        config |= {
            # ViTImageProcessor does not crop; CLIPImageProcessor also resizes the shorter side.
            "image_processor_type": "CLIPImageProcessor" if shortest else "DeiTImageProcessor",
            "size": {"shortest_edge": min(rows, columns)} if shortest else {"height": rows, "width": columns},
            "do_center_crop": True,
            "crop_size": {"height": height, "width": width},
        }
    return config
