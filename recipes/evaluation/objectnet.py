"""ObjectNet (Barbu et al., NeurIPS 2019): 313 kinds of things seen from odd sides, of which 113 overlap with ImageNet.

Its licence forbids training on it; the images and the mapping come from https://objectnet.dev. The paper evaluates it
in appendix D.9. Scoring follows its authors (github.com/abarbu/objectnet-template-tensorflow, objectnet_eval.py): the
likeliest of all 1,000 classes counts. Others keep only the logits of the overlapping classes, which gives higher
numbers (modestyachts/imagenet-testbed).
"""

import json
from pathlib import Path

import numpy as np

from keras_vit.labels import imagenet_labels

# "crops out 2 pixel red border on ObjectNet images", README of the authors' template.
BORDER = 2
FOLDERS_FILE, CLASSES_FILE = "folder_to_objectnet_label.json", "objectnet_to_imagenet_1k.json"


def objectnet_answers(folders, mapping) -> np.ndarray:
    """The classes of ImageNet-1k that are right for each class folder, (folders, 1000) booleans.

    A folder without any is not one of the 113 overlapping classes: its images do not count.

    Args:
        folders: Names of class folders of the release, such as "alarm_clock".
        mapping: The folder "mappings" of the release, with folder_to_objectnet_label.json and
            objectnet_to_imagenet_1k.json.

    Raises:
        ValueError: A folder or a class that the mapping or ImageNet does not have, or no class that overlaps.
        OSError: The mapping cannot be read.
    """
    label_of = _read(Path(mapping) / FOLDERS_FILE)
    names_of = _read(Path(mapping) / CLASSES_FILE)
    unknown = [folder for folder in folders if folder not in label_of]
    if unknown:
        raise ValueError(
            f"{len(unknown)} of the {len(folders)} class folders are not ObjectNet's: {', '.join(unknown[:5])}. "
            "Expected the names in its folder 'images', such as alarm_clock."
        )
    answers = np.zeros((len(folders), 1000), bool)
    for number, folder in enumerate(folders):
        # The file separates classes by semicolons; the words of one class are separated by commas.
        names = names_of.get(label_of[folder])
        for name in names.split("; ") if names else ():
            answers[number, _class_number(name)] = True
    if not answers.any():
        raise ValueError("None of the class folders overlaps with ImageNet-1k, so there is nothing to evaluate.")
    return answers


def overlapping_images(batches, answers, batch_size: int):
    """Regroups batches to those images that count, without their border.

    Args:
        batches: Of lists of (H, W, 3) images of the release, and numbers of their class folders.
        answers: See `objectnet_answers`.
        batch_size: Images at a time; the last batch may have fewer. A model is slow at every new number.

    Yields:
        Lists of (H - 4, W - 4, 3) images, and their labels, (B, 1000) booleans.
    """
    images, labels = [], []
    for found, folders in batches:
        for image, right in zip(found, answers[folders]):
            if right.any():
                images.append(image[BORDER:-BORDER, BORDER:-BORDER])
                labels.append(right)
            if len(images) == batch_size:
                yield images, np.array(labels)
                images, labels = [], []
    if images:
        yield images, np.array(labels)


def _class_number(name):
    numbers = [number for number, (_, words) in enumerate(imagenet_labels()) if words == name]
    if len(numbers) != 1:  # "crane" is two classes
        raise ValueError(f"{CLASSES_FILE} has {name!r}, which is the name of {len(numbers)} classes of ImageNet-1k.")
    return numbers[0]


def _read(file):
    try:
        return json.loads(file.read_text())
    except json.JSONDecodeError as error:
        raise ValueError(f"{file} is not a JSON file as in the release of ObjectNet: {error}") from error
