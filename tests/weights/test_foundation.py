"""DINO, DINOv2, CLIP and SigLIP: outputs equal those of the projects that publish them, at every image size."""

import json
import re

import numpy as np
import pytest
from goldens import FOUNDATION, foundation_folder, golden_file, golden_io, golden_weights, write_arrays

import keras_vit
from keras_vit.images.pixel_range import CLIP, HALF, IMAGENET
from keras_vit.weights import open_checkpoint
from keras_vit.weights.opening import UNSUPPORTED
from keras_vit.weights.sources.timm import GELU_OF_NAMES

PATCH = 7


@pytest.fixture
def family(tmp_path):
    """Loads a foundation model from the files of its project."""
    return lambda name, **changes: keras_vit.load(foundation_folder(tmp_path, name), **FOUNDATION[name][1], **changes)


POOLING_AND_SCALING = {
    "dinov2": ("token", IMAGENET),
    "dinov3": ("token", IMAGENET),
    "hf_dinov3": ("token", IMAGENET),
    "timm_eva02": ("gap", HALF),
    "hf_dinov2_reg": ("token", IMAGENET),
    "hf_dinov2_g": ("token_and_gap", IMAGENET),
    "timm_clip": ("token", CLIP),
    "hf_clip": ("token", CLIP),
    "openai_clip": ("token", CLIP),
    "hf_siglip": ("map", HALF),
    "timm_siglip": ("map", HALF),
    "timm_siglip_gap": ("gap", HALF),
}


@pytest.mark.parametrize("name", FOUNDATION)
def test_outputs_equal_at_every_size(name, family, tmp_path):
    io = golden_io(name)
    for outputs in (key for key in io.files if key.startswith("outputs")):
        images = io[outputs.replace("outputs", "images")]
        side = images.shape[1] // PATCH * PATCH  # no patch covers more
        model = family(name) if outputs == "outputs" else family(name, image_size=side)
        assert model.image_size == (side, side)
        np.testing.assert_allclose(model(images[:, :side, :side]), io[outputs], atol=1e-4)
    checkpoint = open_checkpoint(tmp_path)
    found = checkpoint.describe()["preprocessing"]
    if name in POOLING_AND_SCALING:
        scaling = {key: found[key] for key in ("mean", "std")}
        assert (checkpoint.arguments["pooling"], scaling) == POOLING_AND_SCALING[name]
        assert found["origin"] == "assumed"


@pytest.mark.parametrize(("crop", "side"), [(21, 21), (20, 28)])  # 20 is no multiple of the patch
def test_size_of_the_preprocessor(crop, side, tmp_path):
    """transformers' DINOv2 has positions of 518 pixels, and a preprocessor that crops to 224."""
    config = {"do_center_crop": True, "crop_size": {"height": crop, "width": crop}, "size": {"shortest_edge": 24}}
    (tmp_path / "preprocessor_config.json").write_text(json.dumps(config))
    folder, io = foundation_folder(tmp_path, "hf_dinov2"), golden_io("hf_dinov2")
    model = keras_vit.load(folder)
    assert model.image_size == (side, side) and open_checkpoint(folder).describe()["image_size"] == side
    if side == crop:
        np.testing.assert_allclose(model(io["images_21px"]), io["outputs_21px"], atol=1e-4)
    assert keras_vit.load(folder, image_size=28).image_size == (28, 28)


def test_head_of_clip_is_its_projection(family):
    model, io = family("hf_clip"), golden_io("hf_clip")
    projection = golden_weights("hf_clip")["visual_projection.weight"]
    np.testing.assert_allclose(np.asarray(model.features(io["images"])) @ projection.T, io["outputs"], atol=1e-5)
    assert model.num_classes == 10 and not np.any(model.head.bias)
    assert family("hf_clip", num_classes=0).head is None


def test_projections_are_no_classes(family, tmp_path):
    for name, answer in (("hf_clip", True), ("openai_clip", True), ("timm_clip", False), ("hf_siglip", False)):
        assert family(name).config.projection == answer
    model = family("hf_clip")
    found = open_checkpoint(tmp_path).describe()
    assert found["num_classes"] == 10 and found["class_names"].startswith("none: the head is a projection")
    model.save(tmp_path / "m.keras")
    kept = (model.resized(35), model.with_patch_size(14), keras_vit.load(tmp_path / "m.keras", dtype="mixed_bfloat16"))
    assert all(other.config.projection for other in kept)
    reset = (model.with_head(10), family("hf_clip", num_classes=3), keras_vit.load(tmp_path / "m.keras", num_classes=0))
    assert not any(other.config.projection for other in reset)
    with pytest.raises(ValueError, match="projection"):
        model.classify(np.zeros((28, 28, 3), "uint8"))
    with pytest.raises(ValueError, match="projection=True"):
        model.class_names = [str(i) for i in range(10)]


@pytest.mark.parametrize(("bias", "answer"), [(0.0, True), (0.1, False)])
def test_projection_of_timm_has_a_bias_of_zeros(bias, answer, tmp_path):
    """Fine-tuned models of timm have the same name and a classifier."""
    weights = golden_file(tmp_path, "timm_clip", **{"head.bias": np.full(10, bias, "float32")})
    assert open_checkpoint(weights).arguments["projection"] == answer


def test_tower_beside_that_of_texts(tmp_path):
    arrays = golden_weights("hf_siglip")
    texts = {"text_model.embeddings.token_embedding.weight": np.zeros((3, 4), "float32")}
    texts |= {"logit_scale": np.zeros(1, "float32")}
    write_arrays(tmp_path / "model.safetensors", {f"vision_model.{name}": x for name, x in arrays.items()} | texts)
    vision = {"num_attention_heads": 3, "image_size": 32, "model_type": "siglip_vision_model"}
    (tmp_path / "config.json").write_text(json.dumps({"model_type": "siglip", "vision_config": vision}))
    io = golden_io("hf_siglip")
    np.testing.assert_allclose(keras_vit.load(tmp_path)(io["images"][:, :28, :28]), io["outputs"], atol=1e-4)


def test_towers_of_big_vision(tmp_path):
    arrays, io = golden_weights("big_vision_map"), golden_io("big_vision_map")
    texts = {"params/txt/head/kernel": np.zeros((3, 4), "float32"), "params/t": np.zeros(1, "float32")}
    file = tmp_path / "siglip2_b16_224.npz"
    write_arrays(file, {f"params/img/{name}": x for name, x in arrays.items()} | texts)
    model = keras_vit.load(file)
    np.testing.assert_allclose(model(io["images"]), io["outputs"], atol=1e-4)
    assert (model.preprocessing.resize, model.preprocessing.origin) == ("squash", "table")
    assert model.config.projection == (model.num_classes > 0)
    write_arrays(file, {"params/img/embedding/kernel": np.zeros((768, 24), "float32")})
    with pytest.raises(ValueError, match="NaFlex"):
        keras_vit.load(file)


def test_classifier_of_siglip_averages_patches(tmp_path):
    arrays = {f"vision_model.{name}": x for name, x in golden_weights("hf_siglip").items()}
    head = {"classifier.weight": np.ones((2, 24), "float32"), "classifier.bias": np.ones(2, "float32")}
    write_arrays(tmp_path / "model.safetensors", arrays | head)
    config = {"num_attention_heads": 3, "image_size": 28}
    (tmp_path / "config.json").write_text(json.dumps({"vision_config": config, "id2label": {"0": "cat", "1": "dog"}}))
    model, images = keras_vit.load(tmp_path), golden_io("hf_siglip")["images"][:, :28, :28]
    tokens = np.asarray(model.encode(model.embed(images)))
    np.testing.assert_allclose(model(images), (tokens.mean(axis=1).sum(axis=-1) + 1)[:, None] * [1, 1], atol=1e-4)
    assert model.config.pooling == "gap" and model.class_names == ("cat", "dog")


def test_tower_of_open_clip_that_is_of_timm(tmp_path):
    arrays = {f"visual.trunk.{name}": x for name, x in golden_weights("timm_siglip").items()}
    write_arrays(tmp_path / "open_clip_model.safetensors", arrays | {"text.ln_final.weight": np.ones(4, "float32")})
    described = {"vision_cfg": {"timm_model_name": "vit_base_patch32_siglip_256", "timm_proj": "none"}}
    preprocessing = {"mean": [0.5] * 3, "std": [0.5] * 3, "interpolation": "bicubic", "resize_mode": "squash"}
    config = {"model_cfg": described, "preprocess_cfg": preprocessing}
    (tmp_path / "open_clip_config.json").write_text(json.dumps(config))
    model, io = keras_vit.load(tmp_path, num_heads=3), golden_io("timm_siglip")
    np.testing.assert_allclose(model(io["images"]), io["outputs"], atol=1e-4)
    assert (model.preprocessing.resize, model.preprocessing.origin) == ("squash", "file")
    assert not model.config.projection
    arrays["visual.head.proj.weight"] = np.ones((5, 24), "float32")
    write_arrays(tmp_path / "open_clip_model.safetensors", arrays)
    model = keras_vit.load(tmp_path, num_heads=3)
    assert model.config.projection and model.num_classes == 5


def test_preprocessing_of_older_files_of_clip(tmp_path):
    folder = foundation_folder(tmp_path, "hf_clip")
    stated = {"size": 28, "crop_size": 28, "do_center_crop": True, "resample": 3}
    (folder / "preprocessor_config.json").write_text(json.dumps(stated))
    found = keras_vit.load(folder, preprocessing="clip").preprocessing
    assert (found.resize, found.crop_fraction, found.interpolation, found.antialias) == ("shortest", 1, "bicubic", True)
    assert found.mean == CLIP["mean"] and found.origin == "user"


@pytest.mark.parametrize(("golden", "heads", "hidden"), [("timm_dinov2_g", 24, 8), ("timm_siglip", 16, 4)])
def test_heads_of_the_largest(golden, heads, hidden, tmp_path):
    """DINOv2's g/14 and SigLIP 2's giant have one width, but not one number of heads."""
    shapes = {"patch_embed.proj.weight": (1536, 3, 1, 1), "blocks.0.mlp.fc2.weight": (1536, 4)}
    shapes["blocks.0.mlp.fc1.bias"] = (hidden,)
    zeros = {name: np.zeros(shape, "float32") for name, shape in shapes.items()}
    write_arrays(tmp_path / "model.safetensors", golden_weights(golden) | zeros)
    (tmp_path / "config.json").write_text(json.dumps({"architecture": "vit_giantopt16_" if heads == 16 else ""}))
    assert open_checkpoint(tmp_path).num_heads == heads


def test_the_largest_are_refused(tmp_path, monkeypatch):
    """As DINOv3's 7B, which is too large for a test."""
    monkeypatch.setattr("keras_vit.models.load_checks.MOST_WEIGHTS", 1000)
    with pytest.raises(ValueError, match=r"has 1\d,\d+ weights, 0 GB in float32. Supported: up to 1,000"):
        keras_vit.load(foundation_folder(tmp_path, "hf_dinov3"))


def test_other_forms_of_dinov3(tmp_path):
    """No registers, no biases, images with a border that no patch covers; timm's default pooling."""
    arrays = golden_weights("hf_dinov3") | {"embeddings.register_tokens": np.zeros((1, 0, 24), "float32")}
    arrays = {name: array for name, array in arrays.items() if not name.endswith("_proj.bias")}
    write_arrays(tmp_path / "model.safetensors", arrays)
    (tmp_path / "config.json").write_text(json.dumps({"image_size": 30, "num_attention_heads": 3}))
    model = keras_vit.load(tmp_path)
    assert (model.image_size, model.prefix_tokens) == ((28, 28), 1)
    assert not np.any(model.encoder.blocks[1].mlp.out.bias)
    golden_file(tmp_path, "timm_dinov3").rename(tmp_path / "model.safetensors")
    config = {"model_args": {"num_heads": 3, "img_size": 28}}
    (tmp_path / "config.json").write_text(json.dumps(config))
    assert keras_vit.load(tmp_path).config.pooling == "gap"
    config["model_args"]["rope_temperature"] = 50
    (tmp_path / "config.json").write_text(json.dumps(config))
    with pytest.raises(ValueError, match="rope_temperature is 50"):
        keras_vit.load(tmp_path)


def test_heads_of_rotary_models(tmp_path):
    """DINOv3's H+ is as wide as H/14, which has 16."""
    wide = {"patch_embed.proj.weight": np.zeros((1280, 3, 1, 1), "float32")}
    file = write_arrays(tmp_path / "model.safetensors", golden_weights("timm_dinov3") | wide)
    assert open_checkpoint(file).num_heads == 20


def test_what_is_not_supported_has_a_reason(tmp_path):
    plain, clip, openai = (golden_weights(name) for name in ("timm_dino", "hf_clip", "openai_clip"))
    rope, head = golden_weights("timm_rope"), np.zeros((2, 24), "float32")
    classifier = {name: x for name, x in clip.items() if name.startswith("vision_model.")}
    classifier |= {"classifier.weight": head, "classifier.bias": np.zeros(2, "float32")}
    no_positions = {name: x for name, x in plain.items() if name != "pos_embed"}
    cases = [
        (plain, {"architecture": "vit_pe_core_base_patch16_224"}, "vit_pe_core_.*rotary"),
        (plain | {"norm_pre.weight": head, "attn_pool.latent": head}, {}, "Perception Encoder"),
        (no_positions, {}, "lacks 'pos_embed'"),
        (rope, {}, "positions its file does not state.*config.json that timm publishes"),
        (rope | {"rope.freqs": head}, {}, "RoPE-Mixed"),
        (rope | {"blocks.0.mlp.norm.weight": head}, {}, "within its MLPs"),
        (rope, {"architecture": "beit_base"}, "relative positions"),
        (plain, {"model_type": "siglip2"}, "NaFlex"),
        (classifier, {}, "CLIPForImageClassification"),
        (openai, {}, 'gelu="quick"'),
        (openai, {"model_cfg": {"vision_cfg": {"pool_type": "avg"}}}, "pool_type"),
        (openai | {"visual.attn_pool.query": head}, {}, "attn_pool.query"),
        ({"visual.attnpool.positional_embedding": head}, {}, "ResNet"),
        *(
            (plain, {"model_type": kind}, f"{kind} of transformers, .*{re.escape(UNSUPPORTED[kind])}")
            for kind in UNSUPPORTED
        ),
    ]
    for arrays, config, message in cases:
        write_arrays(tmp_path / "model.safetensors", arrays)
        for name in ("config.json", "open_clip_config.json"):
            (tmp_path / name).write_text(json.dumps(config))
        with pytest.raises(ValueError, match=message):
            keras_vit.load(tmp_path, num_heads=3)


GELU = {
    "tanh": "base_patch32_siglip_256 base_patch32_siglip_gap_256 large_patch16_siglip_512 large_patch16_siglip_gap_512 "
    "so400m_patch16_siglip_gap_384 giantopt_patch16_siglip_256",
    "erf": "base_patch16_siglip_512 large_patch16_siglip_384 so400m_patch14_siglip_384 base_patch32_clip_224",
    "quick": "large_patch14_clip_quickgelu_336",
}


@pytest.mark.parametrize(("gelu", "name"), [(gelu, f"vit_{name}") for gelu in GELU for name in GELU[gelu].split()])
def test_gelu_of_timm_models(gelu, name):
    """As `timm.create_model(name).blocks[0].mlp.act` of timm 1.0.31; config.json does not state it."""
    assert next((gelu for pattern, gelu in GELU_OF_NAMES if re.search(pattern, name)), "erf") == gelu
