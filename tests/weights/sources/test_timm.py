"""Models of timm, by names and config.json, created here from a model of keras_vit."""

import json

import numpy as np
import pytest
from goldens import write_arrays

import keras_vit
from keras_vit.weights import load_weights, open_checkpoint

# Arguments of keras_vit, then those of config.json beside num_heads.
NO_CLASS_TOKEN = {"register_tokens": 4, "prefix_positions": False, "class_token": False, "pooling": "gap"}
AVERAGE = {"pooling": "gap", "class_token": True}
REGISTERS_AND_MAP = {"register_tokens": 4, "class_token": True, "pooling": "map"}
MAP = {"reg_tokens": 4, "global_pool": "map"}
VARIANTS = {
    "headless": ({"num_classes": 0}, {"num_classes": 0}),
    "distilled": ({"distillation": True}, {}),
    "registers": ({"register_tokens": 4}, {"reg_tokens": 4}),
    "no prefix positions": (
        {"register_tokens": 4, "prefix_positions": False},
        {"reg_tokens": 4, "no_embed_class": True},
    ),
    "class token without position": ({"prefix_positions": False}, {"no_embed_class": True}),
    "no class token": (
        NO_CLASS_TOKEN,
        {"reg_tokens": 4, "no_embed_class": True, "class_token": False, "global_pool": "avg", "fc_norm": False},
    ),
    "fc_norm": ({**AVERAGE, "norm_after_pooling": True}, {"global_pool": "avg"}),
    "average after norm": (AVERAGE, {"global_pool": "avg", "fc_norm": False}),
    "not square": ({"image_size": (12, 20)}, {"img_size": [12, 20]}),
    "attention of the patches": (REGISTERS_AND_MAP | {"pool_prefix_tokens": False}, MAP),
    "attention of all tokens": (REGISTERS_AND_MAP, MAP | {"pool_include_prefix": True}),
    "average of all tokens": (
        {**AVERAGE, "pool_prefix_tokens": True},
        {"global_pool": "avg", "fc_norm": False, "pool_include_prefix": True},
    ),
    "all tokens": ({"pooling": "none", "class_token": True}, {"global_pool": ""}),
    "normalized at first": ({"norm_before_encoder": True}, {"pre_norm": True}),
    "tanh": ({"gelu": "tanh"}, {"act_layer": "gelu_tanh"}),
}
WITHOUT_CONFIG = ("distilled", "registers", "no prefix positions", "class token without position", "fc_norm")
CONFIG = {"input_size": [3, 16, 16], "mean": [0.4] * 3, "std": [0.3] * 3, "crop_pct": 0.95, "interpolation": "bicubic"}


def timm_arrays(model) -> dict:
    layers = {"patch_embed.proj": model.patch_embedding.projection, "head": model.head}
    layers |= {"norm": model.encoder.norm, "fc_norm": model.pooled_norm, "head_dist": model.head_distillation}
    layers["norm_pre"] = model.encoder.initial_norm
    arrays = {"pos_embed": model.positions.table}
    if model.config.pooling == "map":
        pool = model.pooling
        parts = {"q": pool.query, "k": pool.key, "v": pool.value, "proj": pool.out, "norm": pool.norm}
        parts |= {"mlp.fc1": pool.mlp.hidden, "mlp.fc2": pool.mlp.out}
        layers |= {f"attn_pool.{name}": layer for name, layer in parts.items()}
        arrays["attn_pool.latent"] = pool.probe
    for i, block in enumerate(model.encoder.blocks):
        layers |= {f"blocks.{i}.norm1": block.norm_attention, f"blocks.{i}.norm2": block.norm_mlp}
        layers |= {f"blocks.{i}.attn.qkv": block.attention.qkv, f"blocks.{i}.attn.proj": block.attention.out}
        layers |= {f"blocks.{i}.mlp.fc1": block.mlp.hidden, f"blocks.{i}.mlp.fc2": block.mlp.out}
        layers |= {f"blocks.{i}.attn.q_norm": block.attention.query_norm}
        layers |= {f"blocks.{i}.attn.k_norm": block.attention.key_norm}
        if block.scale_mlp is not None:
            arrays[f"blocks.{i}.ls1.gamma"] = block.scale_attention.gamma
            arrays[f"blocks.{i}.ls2.gamma"] = block.scale_mlp.gamma
    tokens = {"cls_token": model.class_token, "dist_token": model.distillation_token}
    tokens["reg_token"] = model.register_tokens
    arrays |= {name: layer.weights[0] for name, layer in tokens.items() if layer is not None}
    for name, layer in layers.items():
        if layer is not None:
            weight, bias = (np.asarray(x) for x in layer.weights)
            order = {1: (0,), 2: (1, 0), 4: (3, 2, 0, 1)}[weight.ndim]  # (out, in) and (out, in, h, w)
            arrays |= {f"{name}.weight": weight.transpose(order), f"{name}.bias": bias}
    return {name: np.asarray(array) for name, array in arrays.items()}


def write(folder, arrays, architecture="vit_toy_patch4_16", pretrained=None, **options):
    config = {"architecture": architecture, "model_args": {"num_heads": 3, **options}}
    (folder / "config.json").write_text(json.dumps(config | {"pretrained_cfg": {**CONFIG, **(pretrained or {})}}))
    write_arrays(folder / "model.safetensors", arrays)
    return folder


@pytest.mark.parametrize("variant", VARIANTS)
def test_variants(variant, trained_toy, tmp_path):
    ours, theirs = VARIANTS[variant]
    model = trained_toy(**{"gelu": "erf", **ours})
    arrays = timm_arrays(model)
    loaded = [keras_vit.load(write(tmp_path, arrays, **theirs))]
    random = np.random.default_rng(0).uniform(-1, 1, (2, *model.image_size, 3)).astype("float32")
    np.testing.assert_allclose(loaded[0](random), model(random), atol=1e-6)
    if variant in WITHOUT_CONFIG:
        loaded += [keras_vit.load(write_arrays(tmp_path / "bare.safetensors", arrays), num_heads=3)]
    for config in (one.config for one in loaded):
        differing = {name for name, value in vars(model.config).items() if getattr(config, name) != value}
        assert differing <= {"preprocessing", "layer_scale"}  # the initial value leaves no trace


@pytest.mark.parametrize("options", [{"image_size": (24, 16)}, {"image_size": (20, 12), "prefix_positions": False}])
def test_requested_sizes_explain_the_number_of_positions(options, trained_toy, images, tmp_path):
    """25 rows are a class token and 6 x 4 patches, or 5 x 5 patches; 15 are 5 x 3 patches, or no square."""
    model = trained_toy(gelu="erf", **options)
    file = write_arrays(tmp_path / "bare.safetensors", timm_arrays(model))
    loaded = keras_vit.load(file, image_size=options["image_size"], num_heads=3)
    inputs = np.random.default_rng(0).uniform(-1, 1, (2, *options["image_size"], 3)).astype("float32")
    np.testing.assert_allclose(loaded(inputs), model(inputs), atol=1e-6)


@pytest.mark.parametrize(
    "options,requested",
    [({"image_size": 28}, (20, 40)), ({"prefix_positions": False, "image_size": 20, "layer_scale": 0.1}, (24, 16))],
)
def test_two_readings_of_the_number_of_positions_raise(options, requested, trained_toy, tmp_path):
    """50 rows are 7 x 7 patches and a class token, or 5 x 10; DeiT III's 25 are 5 x 5 patches, or 6 x 4 and it."""
    model = trained_toy(depth=1, **options)
    file = write_arrays(tmp_path / "bare.safetensors", timm_arrays(model))
    side = model.image_size[0]
    with pytest.raises(ValueError, match=rf"\({side}, {side}\) pixels .*\({requested[0]}, {requested[1]}\) pixels"):
        keras_vit.load(file, image_size=requested, num_heads=3)
    for size in (side, requested):
        assert keras_vit.load(file, image_size=requested, num_heads=3, weights_image_size=size).image_size == requested


def test_preprocessing_from_config(trained_toy, tmp_path):
    arrays = timm_arrays(trained_toy())
    images = keras_vit.load(write(tmp_path, arrays)).preprocessing
    assert images.mean == (0.4,) * 3 and images.std == (0.3,) * 3 and images.crop_fraction == 0.95
    assert (images.resize, images.interpolation, images.antialias) == ("shortest", "bicubic", True)
    squashed = keras_vit.load(write(tmp_path, arrays, pretrained={"crop_mode": "squash"})).preprocessing
    assert squashed.resize == "squash" and squashed.image_size == (16, 16)


def test_number_of_heads(trained_toy, tmp_path):
    """The file has none. It is known for published widths, where it can be overridden, and for timm's test models."""
    for width, heads, described, known in ((12, 3, None, None), (192, 6, 3, None), (64, 2, 2, 2)):
        arrays = timm_arrays(trained_toy(depth=1, width=width, num_heads=heads))
        checkpoint = open_checkpoint(write_arrays(tmp_path / f"{width}.safetensors", arrays))
        assert checkpoint.describe()["arguments"]["num_heads"] == described
        assert checkpoint.arguments["num_heads"] == known
    with pytest.raises(ValueError, match="width of 12.*num_heads="):
        keras_vit.load(tmp_path / "12.safetensors")
    assert keras_vit.load(tmp_path / "192.safetensors").config.num_heads == 3
    assert keras_vit.load(tmp_path / "192.safetensors", num_heads=6).config.num_heads == 6


@pytest.mark.parametrize("prefix", ["module.", "_orig_mod.", "model.module.", "teacher.backbone."])
def test_wrappers_before_all_names(prefix, trained_toy, images, tmp_path):
    model = trained_toy(gelu="erf")
    arrays = {f"{prefix}{name}": array for name, array in timm_arrays(model).items()}
    np.testing.assert_allclose(keras_vit.load(write(tmp_path, arrays))(images), model(images), atol=1e-6)
    write(tmp_path, {f"base_model.{name}.lora_A.weight": array for name, array in arrays.items()})
    with pytest.raises(ValueError, match="merge_and_unload"):
        keras_vit.load(tmp_path)


@pytest.mark.parametrize("extra", ["masked_embed", "head.mlp.0.weight", "head.weight"])
@pytest.mark.parametrize("classes", [None, 0, 3])
def test_what_pretraining_adds_is_skipped(extra, classes, trained_toy, images, tmp_path):
    model = trained_toy(gelu="erf", num_classes=0)
    write(tmp_path, timm_arrays(model) | {extra: np.zeros((7, 12), "float32")})
    if classes:
        loaded = keras_vit.load(tmp_path, num_classes=classes)
    else:
        with pytest.warns(UserWarning, match=extra):
            loaded = keras_vit.load(tmp_path, num_classes=classes)
    np.testing.assert_allclose(loaded.features(images), model(images), atol=1e-6)
    report = load_weights(model, tmp_path, skip=("head", extra))
    assert report.skipped == (extra,)


def test_unsupported_variants_raise(trained_toy, tmp_path):
    arrays = timm_arrays(trained_toy())
    extra = np.zeros(12, "float32")
    cases = [
        ({**arrays, "attn_pool.latent": extra}, {}, "14 missing(.|\n)*attn_pool.k.bias"),
        ({**arrays, "attn_pool.kv.weight": extra[:3]}, {}, "attn_pool.kv.weight has shape .3,."),
        ({**arrays, "norm_pre.weight": extra}, {}, "1 missing(.|\n)*norm_pre.bias"),
        (arrays, {"architecture": "vit_relpos_small_patch16_rpn_224"}, "vit_relpos_small_patch16_rpn_224"),
        (arrays, {"norm_layer": "rmsnorm"}, "norm_layer is 'rmsnorm'"),
        (arrays, {"act_layer": "relu"}, "act_layer is 'relu'"),
        (arrays, {"global_pool": "avgmax"}, "global_pool is 'avgmax'"),
        ({n: x for n, x in arrays.items() if "0.attn.qkv.bias" not in n}, {}, "1 missing(.|\n)*blocks.0.attn.qkv.bias"),
        ({n: x for n, x in arrays.items() if n != "pos_embed"}, {}, "lacks 'pos_embed'"),
    ]
    for changed, options, message in cases:
        with pytest.raises(ValueError, match=message):
            keras_vit.load(write(tmp_path, changed, **options))


def test_models_without_biases_of_queries_keys_and_values(trained_toy, tmp_path, images):
    """`qkv_bias=False`: as the file with biases of zeros."""
    arrays = timm_arrays(trained_toy())
    zero = {name: np.zeros_like(x) if "qkv.bias" in name else x for name, x in arrays.items()}
    without = {name: x for name, x in arrays.items() if "qkv.bias" not in name}
    models = []
    for name, some in (("zero", zero), ("without", without)):
        (tmp_path / name).mkdir()
        models.append(keras_vit.load(write(tmp_path / name, some), num_heads=3))
    np.testing.assert_array_equal(models[0](images), models[1](images))


def test_a_stated_size_is_no_guess(trained_toy, tmp_path):
    """16 positions are 4 x 4, as config.json states, or 2 x 8, the requested grid."""
    file = write(tmp_path, timm_arrays(trained_toy()))
    found, expected = (keras_vit.load(file, image_size=(8, 32), **size) for size in ({}, {"weights_image_size": 16}))
    np.testing.assert_array_equal(found.positions.table, expected.positions.table)


@pytest.mark.parametrize("norm", ["norm.", "fc_norm."])
def test_encoder_of_a_masked_autoencoder(norm, trained_toy, tmp_path):
    """Of facebookresearch/mae, saved as .safetensors: names of timm, no head and no config.json."""
    options = {"gelu": "erf", "num_classes": 0, "pooling": "gap", "class_token": True}
    model = trained_toy(**options, norm_after_pooling=norm == "fc_norm.")
    arrays = timm_arrays(model)
    if norm == "norm.":  # the files for visualization have the decoder, too
        decoder = ("mask_token", "decoder_pos_embed", "decoder_embed.weight", "decoder_blocks.0.norm1.bias")
        arrays |= dict.fromkeys(decoder, np.zeros((1, 1, 8), "float32"))
    file = write_arrays(tmp_path / "mae_pretrain_vit_toy.safetensors", arrays)
    preprocessing = keras_vit.Preprocessing(16, mean=(0.485, 0.456, 0.406), std=(0.229, 0.224, 0.225))
    loaded = keras_vit.load(file, num_heads=3, pooling="gap", preprocessing=preprocessing)
    assert loaded.config.class_token and loaded.config.norm_after_pooling == (norm == "fc_norm.")
    images = np.random.default_rng(0).uniform(-1, 1, (2, 16, 16, 3)).astype("float32")
    np.testing.assert_allclose(loaded(images), model(images), atol=1e-6)
