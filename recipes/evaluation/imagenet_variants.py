"""Other test sets for classifiers of ImageNet-1k: ImageNet-V2, -A, -R, -Sketch and ObjectNet. K scored classes.

- "v2" (Recht et al., arXiv 1902.10811): folders are named by the number of the class, from 0 to 999.
- "a" (Hendrycks et al., arXiv 1907.07174) and "r" (arXiv 2006.16241): 200 classes each. As in their eval.py, the
  prediction is the largest output among these 200, so that numbers are higher than among all 1,000.
- "sketch" (Wang et al., arXiv 1905.13549): all 1,000 classes.
- ObjectNet (Barbu et al., NeurIPS 2019): 313 classes of objects from unusual views, 113 of which overlap ImageNet-1k.
  Its license forbids training on it. Images and mapping: https://objectnet.dev. The paper evaluates on it in appendix
  D.9. Scoring follows its authors (github.com/abarbu/objectnet-template-tensorflow, objectnet_eval.py): the prediction
  is the argmax over all 1,000 classes. Others take it over the overlapping classes only, which yields higher numbers
  (modestyachts/imagenet-testbed).
"""

import json
from pathlib import Path

import numpy as np

from keras_vit.class_names import imagenet_class_names
from keras_vit.messages import first_names
from keras_vit.recipes.data.arrays import example_batches

# Numbers of the classes in ImageNet-1k.
IMAGENET_A = """
6 11 13 15 17 22 23 27 30 37 39 42 47 50 57 70 71 76 79 89 90 94 96 97 99 105 107 108 110 113 124 125 130 132 143 144
150 151 207 234 235 254 277 283 287 291 295 298 301 306 307 308 309 310 311 313 314 315 317 319 323 324 326 327 330
334 335 336 347 361 363 372 378 386 397 400 401 402 404 407 411 416 417 420 425 428 430 437 438 445 456 457 461 462
470 472 483 486 488 492 496 514 516 528 530 539 542 543 549 552 557 561 562 569 572 573 575 579 589 606 607 609 614
626 627 640 641 642 643 658 668 677 682 684 687 701 704 719 736 746 749 752 758 763 765 768 773 774 776 779 780 786
792 797 802 803 804 813 815 820 823 831 833 835 839 845 847 850 859 862 870 879 880 888 890 897 900 907 913 924 932
933 934 937 943 945 947 951 954 956 957 959 971 972 980 981 984 986 987 988
"""
IMAGENET_R = """
1 2 4 6 8 9 11 13 22 23 26 29 31 39 47 63 71 76 79 84 90 94 96 97 99 100 105 107 113 122 125 130 132 144 145 147 148
150 151 155 160 161 162 163 171 172 178 187 195 199 203 207 208 219 231 232 234 235 242 245 247 250 251 254 259 260
263 265 267 269 276 277 281 288 289 291 292 293 296 299 301 308 309 310 311 314 315 319 323 327 330 334 335 337 338
340 341 344 347 353 355 361 362 365 366 367 368 372 388 390 393 397 401 407 413 414 425 428 430 435 437 441 447 448
457 462 463 469 470 471 472 476 483 487 515 546 555 558 570 579 583 587 593 594 596 609 613 617 621 629 637 657 658
701 717 724 763 768 774 776 779 780 787 805 812 815 820 824 833 847 852 866 875 883 889 895 907 928 931 932 933 934
936 937 943 945 947 948 949 951 953 954 957 963 965 967 980 981 983 988
"""
SCORED = {
    "v2": np.arange(1000),
    "a": np.array(IMAGENET_A.split(), int),
    "r": np.array(IMAGENET_R.split(), int),
    "sketch": np.arange(1000),
}

# "crops out 2 pixel red border on ObjectNet images", README of the authors' template.
BORDER = 2
FOLDERS_FILE, CLASSES_FILE = "folder_to_objectnet_label.json", "objectnet_to_imagenet_1k.json"


def scored_classes(variant: str) -> np.ndarray:
    """(K,) numbers of the classes of ImageNet-1k that a variant has, in their order."""
    if variant not in SCORED:
        raise ValueError(f"The variant of ImageNet must be one of {', '.join(SCORED)}. Received: {variant!r}")
    return SCORED[variant]


def variant_labels(class_names, variant: str) -> np.ndarray:
    """The position among the scored classes of each class of a dataset, (classes,); -1 for others."""
    scored = scored_classes(variant)
    numbers = {wordnet_id: number for number, (wordnet_id, _) in enumerate(imagenet_class_names())}
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
    """Replaces the labels of batches by positions among the scored classes, see `variant_labels`."""
    for images, classes in batches:
        if classes.ndim != 1:
            raise ValueError("Variants of ImageNet have one label per image. Received: a dataset with several.")
        positions = labels[classes]
        if (positions < 0).any():
            raise ValueError("The dataset has images of other classes. Check the variant of ImageNet.")
        yield images, positions


def map_to_imagenet(class_folders, mapping) -> np.ndarray:
    """The correct ImageNet-1k classes of each class folder, (folders, 1000) booleans.

    Folders without any are not among the 113 overlapping classes; their images do not count.
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
    """Removes images of other classes, and the border of the remaining ones; regroups them into full batches."""
    pairs = ((image, target) for batch, folders in batches for image, target in zip(batch, targets[folders]))
    inside = ((image[BORDER:-BORDER, BORDER:-BORDER], target) for image, target in pairs if target.any())
    return example_batches(inside, batch_size)


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
