"""The classes of ImageNet: WordNet ids and English words, in the order of the published checkpoints.

README.md in this folder says where the lists are from.
"""

import functools
import gzip
from importlib import resources

FILES = {1000: "imagenet_1k.txt.gz", 21843: "imagenet_21k.txt.gz"}
# ImageNet's release of fall 2011 (21,841 classes) has the same order without these two.
NOT_IN_FALL_2011 = ("n03931044", "n09859684")


@functools.cache
def imagenet_labels(num_classes: int = 1000) -> tuple[tuple[str, str], ...]:
    """The (WordNet id, words) of each class, such as ("n01440764", "tench, Tinca tinca").

    Args:
        num_classes: 1000 for ImageNet-1k; 21843 for ImageNet-21k as Google's checkpoints have it; 21841 for
            ImageNet-21k as released in fall 2011.

    Raises:
        ValueError: Another number.
    """
    if num_classes == 21841:
        return tuple(row for row in imagenet_labels(21843) if row[0] not in NOT_IN_FALL_2011)
    if num_classes not in FILES:
        raise ValueError(
            f"The classes of ImageNet are known for 1000, 21841 and 21843 outputs. Received: {num_classes}. Give the "
            "classes of your own model: labels=[...]."
        )
    text = gzip.decompress(resources.files("keras_vit.labels").joinpath(FILES[num_classes]).read_bytes()).decode()
    rows = (line.partition("\t") for line in text.splitlines())
    return tuple((wordnet_id, words) for wordnet_id, _, words in rows)
