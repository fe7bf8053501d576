"""How peers' files say that images were prepared, as fields of `Preprocessing` without the size."""

import warnings

import numpy as np

PILLOW = {0: "nearest", 1: "lanczos3", 2: "bilinear", 3: "bicubic"}


def from_hugging_face(config: dict) -> dict:
    """Of transformers' preprocessor_config.json. Warns of a way to resize that there is not; it is left out then."""
    fields: dict = {}
    # (pixels * factor - mean) / std; ours are pixels / 255.
    factor = 255.0 * (config.get("rescale_factor") or 1 / 255) if config.get("do_rescale", True) else 255.0
    mean, std = config.get("image_mean"), config.get("image_std")
    if not config.get("do_normalize", True):
        mean, std = (0.0,) * 3, (1.0,) * 3
    if mean is not None and std is not None:
        three = {name: (x,) * 3 if isinstance(x, int | float) else x for name, x in (("mean", mean), ("std", std))}
        fields |= {name: tuple(x / factor for x in values) for name, values in three.items()}
    if config.get("resample") is not None:
        if config["resample"] in PILLOW:
            fields["interpolation"] = PILLOW[config["resample"]]
        else:  # no reason to refuse the weights
            warnings.warn(
                f"preprocessor_config.json says resample={config['resample']!r}. Known: "
                f"{', '.join(f'{number} ({name})' for number, name in PILLOW.items())}. Images are resized "
                "bilinearly unless you say preprocessing=keras_vit.Preprocessing(...).",
                stacklevel=2,
            )
    size, crop = _side(config.get("size")), _side(config.get("crop_size"))
    if config.get("do_center_crop") and size and crop:
        fields["crop_fraction"] = min(crop / size, 1.0)
    if isinstance(config.get("size"), dict) and "shortest_edge" in config["size"]:
        fields["resize"] = "shortest"
    return fields


def _side(size):
    return min(filter(None, size.values()), default=None) if isinstance(size, dict) else size


def from_timm(config: dict) -> dict:
    """Of the pretrained_cfg in timm's config.json."""
    fields: dict = {name: tuple(config[name]) for name in ("mean", "std") if name in config}
    if "crop_pct" in config:
        fields["crop_fraction"] = config["crop_pct"]
    if config.get("crop_mode") == "squash":
        fields["resize"] = "squash"
    if config.get("interpolation") in PILLOW.values():
        fields["interpolation"] = config["interpolation"]
    return fields


def from_keras_hub(config: dict) -> dict:
    """Of KerasHub's image_converter.json: x * scale + offset of pixels in [0, 255]."""
    fields: dict = {}
    if config.get("scale") is not None:
        std = 1.0 / (255.0 * np.broadcast_to(np.asarray(config["scale"], "float64"), 3))
        mean = -np.broadcast_to(np.asarray(config.get("offset") or 0.0, "float64"), 3) * std
        fields |= {"mean": tuple(mean.tolist()), "std": tuple(std.tolist())}
    if "crop_to_aspect_ratio" in config:
        fields["resize"] = "shortest" if config["crop_to_aspect_ratio"] else "squash"
    for name in ("interpolation", "antialias"):
        if name in config:
            fields[name] = config[name]
    return fields
