"""Other test sets for classifiers of ImageNet-1k: ImageNet-V2, -A, -R and -Sketch. K scored classes.

- "v2" (Recht et al., arXiv 1902.10811): folders are named by the number of the class, from 0 to 999.
- "a" (Hendrycks et al., arXiv 1907.07174) and "r" (arXiv 2006.16241): 200 classes each. As in their eval.py, the
  prediction is the largest output among these 200, so that numbers are higher than among all 1,000.
- "sketch" (Wang et al., arXiv 1905.13549): all 1,000 classes.
"""

import numpy as np

from keras_vit.class_names import imagenet_class_names
from keras_vit.name_list import first_names

IMAGENET_A = """
n01498041 n01531178 n01534433 n01558993 n01580077 n01614925 n01616318 n01631663 n01641577 n01669191 n01677366
n01687978 n01694178 n01698640 n01735189 n01770081 n01770393 n01774750 n01784675 n01819313 n01820546 n01833805
n01843383 n01847000 n01855672 n01882714 n01910747 n01914609 n01924916 n01944390 n01985128 n01986214 n02007558
n02009912 n02037110 n02051845 n02077923 n02085620 n02099601 n02106550 n02106662 n02110958 n02119022 n02123394
n02127052 n02129165 n02133161 n02137549 n02165456 n02174001 n02177972 n02190166 n02206856 n02219486 n02226429
n02231487 n02233338 n02236044 n02259212 n02268443 n02279972 n02280649 n02281787 n02317335 n02325366 n02346627
n02356798 n02361337 n02410509 n02445715 n02454379 n02486410 n02492035 n02504458 n02655020 n02669723 n02672831
n02676566 n02690373 n02701002 n02730930 n02777292 n02782093 n02787622 n02793495 n02797295 n02802426 n02814860
n02815834 n02837789 n02879718 n02883205 n02895154 n02906734 n02948072 n02951358 n02980441 n02992211 n02999410
n03014705 n03026506 n03124043 n03125729 n03187595 n03196217 n03223299 n03250847 n03255030 n03291819 n03325584
n03355925 n03384352 n03388043 n03417042 n03443371 n03444034 n03445924 n03452741 n03483316 n03584829 n03590841
n03594945 n03617480 n03666591 n03670208 n03717622 n03720891 n03721384 n03724870 n03775071 n03788195 n03804744
n03837869 n03840681 n03854065 n03888257 n03891332 n03935335 n03982430 n04019541 n04033901 n04039381 n04067472
n04086273 n04099969 n04118538 n04131690 n04133789 n04141076 n04146614 n04147183 n04179913 n04208210 n04235860
n04252077 n04252225 n04254120 n04270147 n04275548 n04310018 n04317175 n04344873 n04347754 n04355338 n04366367
n04376876 n04389033 n04399382 n04442312 n04456115 n04482393 n04507155 n04509417 n04532670 n04540053 n04554684
n04562935 n04591713 n04606251 n07583066 n07695742 n07697313 n07697537 n07714990 n07718472 n07720875 n07734744
n07749582 n07753592 n07760859 n07768694 n07831146 n09229709 n09246464 n09472597 n09835506 n11879895 n12057211
n12144580 n12267677
""".split()
IMAGENET_R = """
n01443537 n01484850 n01494475 n01498041 n01514859 n01518878 n01531178 n01534433 n01614925 n01616318 n01630670
n01632777 n01644373 n01677366 n01694178 n01748264 n01770393 n01774750 n01784675 n01806143 n01820546 n01833805
n01843383 n01847000 n01855672 n01860187 n01882714 n01910747 n01944390 n01983481 n01986214 n02007558 n02009912
n02051845 n02056570 n02066245 n02071294 n02077923 n02085620 n02086240 n02088094 n02088238 n02088364 n02088466
n02091032 n02091134 n02092339 n02094433 n02096585 n02097298 n02098286 n02099601 n02099712 n02102318 n02106030
n02106166 n02106550 n02106662 n02108089 n02108915 n02109525 n02110185 n02110341 n02110958 n02112018 n02112137
n02113023 n02113624 n02113799 n02114367 n02117135 n02119022 n02123045 n02128385 n02128757 n02129165 n02129604
n02130308 n02134084 n02138441 n02165456 n02190166 n02206856 n02219486 n02226429 n02233338 n02236044 n02268443
n02279972 n02317335 n02325366 n02346627 n02356798 n02363005 n02364673 n02391049 n02395406 n02398521 n02410509
n02423022 n02437616 n02445715 n02447366 n02480495 n02480855 n02481823 n02483362 n02486410 n02510455 n02526121
n02607072 n02655020 n02672831 n02701002 n02749479 n02769748 n02793495 n02797295 n02802426 n02808440 n02814860
n02823750 n02841315 n02843684 n02883205 n02906734 n02909870 n02939185 n02948072 n02950826 n02951358 n02966193
n02980441 n02992529 n03124170 n03272010 n03345487 n03372029 n03424325 n03452741 n03467068 n03481172 n03494278
n03495258 n03498962 n03594945 n03602883 n03630383 n03649909 n03676483 n03710193 n03773504 n03775071 n03888257
n03930630 n03947888 n04086273 n04118538 n04133789 n04141076 n04146614 n04147183 n04192698 n04254680 n04266014
n04275548 n04310018 n04325704 n04347754 n04389033 n04409515 n04465501 n04487394 n04522168 n04536866 n04552348
n04591713 n07614500 n07693725 n07695742 n07697313 n07697537 n07714571 n07714990 n07718472 n07720875 n07734744
n07742313 n07745940 n07749582 n07753275 n07753592 n07768694 n07873807 n07880968 n07920052 n09472597 n09835506
n10565667 n12267677
""".split()
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
