"""WordNet ids and names of the classes of ImageNet, in the order of the outputs of published checkpoints.

README.md in this folder has the sources of the lists.
"""

import functools
import gzip
from importlib import resources

NUM_CLASSES = (1000, 21841, 21843)
FILES = {1000: "imagenet_1k.txt.gz", 21843: "imagenet_21k.txt.gz"}
# ImageNet's release of fall 2011 (21,841 classes) has the same order without these two.
NOT_IN_FALL_2011 = ("n03931044", "n09859684")


@functools.cache
def imagenet_class_names(num_classes: int = 1000) -> tuple[tuple[str, str], ...]:
    """(WordNet id, name) of each class, such as ("n01440764", "tench, Tinca tinca").

    Args:
        num_classes: 1000 for ImageNet-1k, 21843 for ImageNet-21k in Google's checkpoints, 21841 for ImageNet-21k as
            released in fall 2011.

    Raises:
        ValueError: `num_classes` is none of these.
    """
    if num_classes == 21841:
        return tuple(row for row in imagenet_class_names(21843) if row[0] not in NOT_IN_FALL_2011)
    if num_classes not in FILES:
        raise ValueError(
            f"ImageNet has 1000, 21841 or 21843 classes. Received: {num_classes}. For another dataset pass "
            "class_names=[...]."
        )
    text = gzip.decompress(resources.files("keras_vit.class_names").joinpath(FILES[num_classes]).read_bytes()).decode()
    rows = (line.partition("\t") for line in text.splitlines())
    return tuple((wordnet_id, name) for wordnet_id, _, name in rows)
