"""ObjectNet (Barbu et al., NeurIPS 2019): 313 classes of objects from unusual views, 113 of which overlap ImageNet-1k.

Its license forbids training on it. Images and mapping: https://objectnet.dev. The paper evaluates on it in appendix
D.9. Scoring follows its authors (github.com/abarbu/objectnet-template-tensorflow, objectnet_eval.py): the prediction is
the argmax over all 1,000 classes. Others take it over the overlapping classes only, which yields higher numbers
(modestyachts/imagenet-testbed).
"""

import json
from pathlib import Path

import numpy as np

from keras_vit.class_names import imagenet_class_names
from keras_vit.name_list import first_names

# "crops out 2 pixel red border on ObjectNet images", README of the authors' template.
BORDER = 2
FOLDERS_FILE, CLASSES_FILE = "folder_to_objectnet_label.json", "objectnet_to_imagenet_1k.json"


def map_to_imagenet(class_folders, mapping) -> np.ndarray:
    """The correct ImageNet-1k classes of each class folder, (folders, 1000) booleans.

    Folders without any are not among the 113 overlapping classes; their images do not count.

    Args:
        class_folders: Names of class folders of the release, such as "alarm_clock".
        mapping: The folder "mappings" of the release, with folder_to_objectnet_label.json and
            objectnet_to_imagenet_1k.json.

    Raises:
        ValueError: A folder is not in the mapping, a mapped class is not in ImageNet-1k, or no class overlaps.
        OSError: The mapping cannot be read.
    """
    label_of = _read(Path(mapping) / FOLDERS_FILE)
    names_of = _read(Path(mapping) / CLASSES_FILE)
    unknown = [folder for folder in class_folders if folder not in label_of]
    if unknown:
        raise ValueError(
            f"{len(unknown)} of the {len(class_folders)} class folders are not ObjectNet's: {first_names(unknown)}. "
            "Expected the names in its folder 'images', such as alarm_clock."
        )
    targets = np.zeros((len(class_folders), 1000), bool)
    for number, folder in enumerate(class_folders):
        # The file separates classes by semicolons, and the synonyms of one class by commas.
        names = names_of.get(label_of[folder])
        for name in names.split("; ") if names else ():
            targets[number, _class_index(name)] = True
    if not targets.any():
        raise ValueError("None of the class folders overlaps with ImageNet-1k, so there is nothing to evaluate.")
    return targets


def overlapping_images(batches, targets, batch_size: int):
    """Removes images of other classes, and the border of the remaining ones; regroups them into full batches.

    Args:
        batches: Pairs of a list of (H, W, 3) images of the release and the indices of their class folders.
        targets: See `map_to_imagenet`.
        batch_size: Images per batch. Only the last one may be smaller: a model is retraced for every new size.

    Yields:
        A list of (H - 4, W - 4, 3) images, and their labels, (B, 1000) booleans.
    """
    images, labels = [], []
    for batch, folders in batches:
        for image, target in zip(batch, targets[folders]):
            if target.any():
                images.append(image[BORDER:-BORDER, BORDER:-BORDER])
                labels.append(target)
            if len(images) == batch_size:
                yield images, np.array(labels)
                images, labels = [], []
    if images:
        yield images, np.array(labels)


def _class_index(name):
    indices = [index for index, (_, words) in enumerate(imagenet_class_names()) if words == name]
    if len(indices) != 1:  # "crane" is two classes
        raise ValueError(f"{CLASSES_FILE} contains {name!r}, the name of {len(indices)} classes of ImageNet-1k.")
    return indices[0]


def _read(file):
    try:
        return json.loads(file.read_text())
    except json.JSONDecodeError as error:
        raise ValueError(f"{file} is not valid JSON, as in the release of ObjectNet: {error}") from error
