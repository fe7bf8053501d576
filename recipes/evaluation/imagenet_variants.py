"""Other test sets for classifiers of ImageNet-1k: ImageNet-V2, -A, -R and -Sketch. K scored classes.

- "v2" (Recht et al., arXiv 1902.10811): folders are named by the number of the class, from 0 to 999.
- "a" (Hendrycks et al., arXiv 1907.07174) and "r" (arXiv 2006.16241): 200 classes each. As in their eval.py, the
  prediction is the largest output among these 200, so that numbers are higher than among all 1,000.
- "sketch" (Wang et al., arXiv 1905.13549): all 1,000 classes.
"""

import numpy as np

from keras_vit.class_names import imagenet_class_names
from keras_vit.name_list import first_names
from keras_vit.recipes.evaluation.imagenet_subsets import IMAGENET_A, IMAGENET_R

SUBSETS: dict[str, list[str] | None] = {"v2": None, "a": IMAGENET_A, "r": IMAGENET_R, "sketch": None}


def scored_classes(variant: str) -> np.ndarray:
    """(K,) numbers of the classes of ImageNet-1k that a variant has, in their order.

    Raises:
        ValueError: An unknown variant.
    """
    if variant not in SUBSETS:
        raise ValueError(f"The variant of ImageNet must be one of {', '.join(SUBSETS)}. Received: {variant!r}")
    subset = SUBSETS[variant]
    numbers = _numbers()
    return np.arange(1000) if subset is None else np.array([numbers[wordnet_id] for wordnet_id in subset])


def variant_labels(class_names, variant: str) -> np.ndarray:
    """The position among the scored classes of each class of a dataset, (classes,); -1 for others.

    Args:
        class_names: Of the dataset: WordNet ids, or numbers in ImageNet-V2's folders. TensorFlow Datasets has all 1,000
            of them, also for ImageNet-A and ImageNet-R.
        variant: "v2", "a", "r" or "sketch".

    Raises:
        ValueError: Names that are no classes of ImageNet-1k, or classes of the variant that are missing.
    """
    scored, numbers = scored_classes(variant), _numbers()
    if variant == "v2":
        numbers |= {str(number): number for number in range(1000)}
    expected = "numbers from 0 to 999" if variant == "v2" else "WordNet ids such as n01440764"
    if unknown := [name for name in class_names if name not in numbers]:
        raise ValueError(
            f"{len(unknown):,} of the {len(class_names):,} classes are not ImageNet's: {first_names(unknown)}. "
            f"Expected {expected}."
        )
    position = {number: place for place, number in enumerate(scored.tolist())}
    labels = np.array([position.get(numbers[name], -1) for name in class_names])
    if missing := sorted(set(position.values()) - set(labels.tolist())):
        ids = [str(scored[place]) if variant == "v2" else imagenet_class_names()[scored[place]][0] for place in missing]
        raise ValueError(
            f"{len(missing):,} of the {len(scored):,} classes of ImageNet-{variant.capitalize()} have no images: "
            f"{first_names(ids)}. Unpack all of it."
        )
    return labels


def variant_images(batches, labels: np.ndarray):
    """Replaces the labels of batches by positions among the scored classes.

    Args:
        batches: Pairs of a list of images and their labels in the dataset.
        labels: See `variant_labels`.

    Raises:
        ValueError: An image is of a class that the variant does not have.
    """
    for images, classes in batches:
        if classes.ndim != 1:
            raise ValueError("Variants of ImageNet have one label per image. Received: a dataset with several.")
        found = labels[classes]
        if (found < 0).any():
            raise ValueError("The dataset has images of other classes. Check the variant of ImageNet.")
        yield images, found


def _numbers() -> dict[str, int]:
    return {wordnet_id: number for number, (wordnet_id, _) in enumerate(imagenet_class_names())}
