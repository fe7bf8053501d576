"""A folder of images without splits: which of its images are for training, and which for evaluation."""

import hashlib

TEST_FRACTION = 0.2


def split_by_class(images: list[tuple[str, str]]) -> dict[str, list[tuple[str, str]]]:
    """Splits images into "train" and "test": a fifth of each class, at least one, is "test".

    The choice comes from a hash of the names, so that it is the same on every machine, and few images change sides
    when some are added. A class with a single image has it in "train".

    Args:
        images: (class, file) of each image; files have different names.

    Returns:
        The images of both splits, in the order in which they were.
    """
    by_class: dict[str, list[str]] = {}
    for class_name, file in images:
        by_class.setdefault(class_name, []).append(file)
    test = set()
    for files in by_class.values():
        count = 0 if len(files) == 1 else max(1, round(TEST_FRACTION * len(files)))
        test.update(sorted(files, key=_hash)[:count])
    return {
        "train": [image for image in images if image[1] not in test],
        "test": [image for image in images if image[1] in test],
    }


def _hash(file: str) -> str:
    return hashlib.sha256(file.encode()).hexdigest()
