"""Model cards: Markdown that describes the file of a trained or converted model."""

import json
from dataclasses import asdict

from keras_vit.messages import first_names
from keras_vit.models.classification import has_classes, is_projection
from keras_vit.variants import variant_name
from keras_vit.version import __version__

UNKNOWN = "Not specified"
SHOWN_APART = ("preprocessing", "image_size", "num_classes", "class_names", "projection")
LIMITATIONS = (
    "- The model knows only the classes and the kind of images it was trained on. It is also confident on "
    "out-of-distribution images.\n"
    "- The metrics hold for the dataset they were measured on. Biases of the training data were not examined.\n"
    "- Images must be preprocessed as described above: `model.preprocess` does this."
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
    """A model card with the metadata that the Hugging Face Hub reads.

    Args:
        model: A model of keras_vit.
        file: Path of the model's file from the folder of the card.
        origin: Sentence about where the weights are from.
        data: Training data.
        recipe: The fields of `recipe.json`.
        metrics: Metrics by name; accuracies in [0, 1].
        license: License of the weights.

    Returns:
        Markdown.
    """
    sections = {
        "Use": f"```python\nimport keras_vit\n\nmodel = keras_vit.load({json.dumps(file)})\n{_use(model)}\n```",
        "Model": _rows(_facts(model)),
        "Preprocessing": _rows(model.preprocessing.get_config()),
        "Origin": origin,
        "Training data": data or UNKNOWN,
        "Metrics": _rows(metrics) if metrics else UNKNOWN,
        "Limitations": LIMITATIONS,
        "License": license
        or f"{UNKNOWN}. It depends on the licenses of the original weights and of the training data.",
    }
    if recipe:
        fields = json.dumps(recipe, indent=2, sort_keys=True)
        sections["Training recipe"] = f"keras_vit {__version__}:\n\n```json\n{fields}\n```"
    body = "\n\n".join(f"## {title}\n\n{text}" for title, text in sections.items())
    return f"{_metadata(model, license)}\n# {_title(model)}\n\n{body}\n"


def _metadata(model, license):
    task = "image-classification" if has_classes(model) else "image-feature-extraction"
    lines = ["---", "library_name: keras", f"pipeline_tag: {task}", "tags:", "- vision", "- keras_vit"]
    return "\n".join([*lines, *([f"license: {json.dumps(license)}"] if license else []), "---", ""])


def _title(model):
    return f"{variant_name(asdict(model.config)) or type(model).__name__}, images of {_size(model)}"


def _size(model):
    return f"{model.image_size[0]} x {model.image_size[1]} pixels" if model.image_size else "any size"


def _facts(model):
    is_other = getattr(model, "any_backbone", False)
    facts = {
        "architecture": type(model).__name__,
        "variant": variant_name(asdict(model.config)) or (model.backbone.name if is_other else "custom"),
        "weights": f"{model.count_params():,}",
        "images": _size(model),
        "classes": _classes(model),
    }
    config = {name: value for name, value in asdict(model.config).items() if value is not None}
    return facts | {name: config[name] for name in config if name not in SHOWN_APART}


def _use(model):
    if is_projection(model):
        return 'embeddings = model(model.preprocess(["photo.jpg"]))'
    if model.num_classes:
        return 'print(model.classify(["photo.jpg"]))'
    return 'features = model.features(model.preprocess(["photo.jpg"]))'


def _classes(model):
    if is_projection(model):
        return f"none: {model.num_classes:,} outputs, a projection, as CLIP's, or a regression"
    if not model.num_classes:
        return "no head"
    return f"{model.num_classes:,}" + (f": {first_names(model.class_names, 10)}" if model.class_names else "")


def _rows(values):
    rows = [f"| {_text(name.replace('_', ' '))} | {_text(value)} |" for name, value in values.items()]
    return "\n".join(["| | |", "|---|---|", *rows])


def _text(value):
    return f"{value:.4g}" if isinstance(value, float) else str(value).replace("|", "\\|")
