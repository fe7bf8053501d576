"""What a trained or converted model is, for whoever finds its file: a page in Markdown."""

import json
from dataclasses import asdict

from keras_vit.variants import variant_name
from keras_vit.version import __version__

UNKNOWN = "not told"
LIMITS = (
    "- It knows the classes and the kind of images it was trained on. Of others, too, it says something, as sure.\n"
    "- Its figures are those under Metrics, of that data. Biases of the data are in it, and were not examined.\n"
    "- Images must be prepared as said under Preprocessing: `model.preprocess` does it."
)


def model_card(
    model,
    file: str,
    origin: str,
    data: str | None = None,
    recipe: dict | None = None,
    metrics: dict | None = None,
    license: str | None = None,
) -> str:
    """A card with the head that the Hugging Face Hub reads.

    Args:
        model: Of keras_vit.
        file: The model's file, beside which the card is put.
        origin: Where the weights are from, a sentence.
        data: What it was trained on.
        recipe: All fields of the training, as `recipe.json` has them.
        metrics: Figures by name; those of classes in [0, 1].
        license: Of the weights. Without it the card says that it is not told.

    Returns:
        Markdown.
    """
    sections = {
        "Use": f"```python\nimport keras_vit\n\nmodel = keras_vit.load({file!r})\n"
        "outputs = model(model.preprocess(images))  # images: (B, H, W, 3), pixels from 0 to 255\n```",
        "Model": _rows(_facts(model)),
        "Preprocessing": _rows(model.preprocessing.get_config()),
        "Origin": origin,
        "Data": data or UNKNOWN,
        "Metrics": _rows(metrics) if metrics else UNKNOWN,
        "Limits": LIMITS,
        "License": license or f"Of the weights: {UNKNOWN}. Whoever made the first of them, and the data, decides.",
    }
    if recipe:
        fields = json.dumps(recipe, indent=2, sort_keys=True)
        sections["Training"] = f"With keras_vit {__version__}:\n\n```json\n{fields}\n```"
    body = "\n\n".join(f"## {title}\n\n{text}" for title, text in sections.items())
    return f"{_head(model, license)}\n# {_title(model)}\n\n{body}\n"


def _head(model, license):
    task = "image-classification" if model.num_classes else "image-feature-extraction"
    lines = ["---", "library_name: keras", f"pipeline_tag: {task}", "tags:", "- vision", "- keras_vit"]
    return "\n".join([*lines, *([f"license: {json.dumps(license)}"] if license else []), "---", ""])


def _title(model):
    return f"{variant_name(asdict(model.config)) or type(model).__name__}, images of {_size(model)}"


def _size(model):
    return f"{model.image_size[0]} x {model.image_size[1]} pixels" if model.image_size else "any size"


def _facts(model):
    facts = {
        "architecture": type(model).__name__,
        "variant": variant_name(asdict(model.config)) or "none of the published",
        "weights": f"{model.count_params():,}",
        "images": _size(model),
        "classes": model.num_classes or "no head",
    }
    hidden = ("preprocessing", "image_size", "num_classes")
    return facts | {name: value for name, value in asdict(model.config).items() if name not in hidden and value is not None}


def _rows(values):
    rows = [f"| {name.replace('_', ' ')} | {_text(value)} |" for name, value in values.items()]
    return "\n".join(["| | |", "|---|---|", *rows])


def _text(value):
    return f"{value:.4g}" if isinstance(value, float) else str(value)
