"""VTAB-1k: 19 tasks of 1,000 training images each (arXiv 1910.04867), as the paper's Table 9 has them.

Data sets, splits and labels are those of google-research/task_adaptation (task_adaptation/data), in TensorFlow
Datasets' notation: 800 images of the training part and 200 of the validation part, which for data without one is
what follows the first 60 to 90 % of the training part. Where its version of a data set has gone from TensorFlow
Datasets (Pets 3), the present one is taken.

Crops and flips that would change the answer are left out (BiT, arXiv 1912.11370, supplement F).
"""

from collections.abc import Callable
from dataclasses import dataclass


@dataclass(frozen=True)
class Task:
    """One of the 19 tasks.

    Args:
        name: On the command line, after "vtab/" or "vtab-".
        title: In the paper's Table 9.
        group: "natural", "specialized" or "structured".
        dataset: In TensorFlow Datasets.
        num_classes: Number of answers.
        val200, test_split: In TensorFlow Datasets' notation, as `train800` and `train_split`, which are 1,000 images.
        label: From an example's features to its class; without it, that is the feature "label".
        class_names: Of a label that is no feature.
        brightest: The largest value of a pixel.
        crop, flip: Whether training images may be.
    """

    name: str
    title: str
    group: str
    dataset: str
    num_classes: int
    val200: str
    test_split: str = "test"
    label: Callable | None = None
    class_names: tuple[str, ...] = ()
    brightest: int = 255
    crop: bool = True
    flip: bool = True

    train800 = "train[:800]"

    @property
    def train_split(self) -> str:
        return f"{self.train800}+{self.val200}"


def count_of_objects(features):
    """Clevr: 3 to 10 objects are classes 0 to 7."""
    import tensorflow as tf

    return tf.size(features["objects"]["size"], tf.int64) - 3


def distance_of_nearest_object(features):
    """Clevr: the least of the third pixel coordinates, which is the depth, in 6 parts."""
    import tensorflow as tf

    return _part(tf.reduce_min(features["objects"]["pixel_coords"][:, 2]), (8.0, 8.5, 9.0, 9.5, 10.0))


def distance_of_nearest_vehicle(features):
    """KITTI: metres ahead of the camera to the nearest car, van or truck (types 0, 1, 2), in 3 parts; 3 is none."""
    import tensorflow as tf

    ahead = tf.boolean_mask(features["objects"]["location"][:, 2], features["objects"]["type"] < 3)
    return _part(tf.reduce_min(tf.concat([ahead, [1000.0]], axis=0)), (8.0, 20.0, 999.0))


def sixteenths(feature: str, values: int) -> Callable:
    """dSprites: a class of so many values, in 16 groups of neighbors."""
    return lambda features: features[feature] * 16 // values


def _part(value, edges):
    """How many edges lie below the value."""
    import tensorflow as tf

    return tf.math.count_nonzero(value > tf.constant(edges))


def _feature(name):
    return lambda features: features[name]


DEPTHS = ("up to 8.0", "8.0 to 8.5", "8.5 to 9.0", "9.0 to 9.5", "9.5 to 10.0", "more than 10.0")
VEHICLES = ("up to 8 m", "8 to 20 m", "more than 20 m", "no vehicle")
SIXTEENTHS = tuple(f"{number} of 16" for number in range(16))
ELEVATIONS = tuple(f"{degrees} degrees" for degrees in range(30, 75, 5))
AZIMUTHS = tuple(f"{degrees} degrees" for degrees in range(0, 360, 20))

CLEVR = {"group": "structured", "dataset": "clevr:3.*.*", "val200": "train[63000:63200]", "test_split": "validation"}
DSPRITES = {
    "group": "structured",
    "dataset": "dsprites:2.*.*",
    "num_classes": 16,
    "val200": "train[589824:590024]",
    "test_split": "train[663552:]",
    "class_names": SIXTEENTHS,
    "brightest": 1,
    "flip": False,
}
SMALLNORB = {
    "group": "structured",
    "dataset": "smallnorb:2.*.*",
    "val200": "test[:200]",
    "test_split": "test[50%:]",
}
VALIDATION = "validation[:200]"

_ROWS = (
    Task("caltech101", "Caltech101", "natural", "caltech101:3.*.*", 102, "train[2753:2953]"),
    Task("cifar100", "CIFAR-100", "natural", "cifar100:3.*.*", 100, "train[45000:45200]"),
    Task("dtd", "DTD", "natural", "dtd:3.*.*", 47, VALIDATION),
    Task("flowers102", "Flowers102", "natural", "oxford_flowers102:2.*.*", 102, VALIDATION),
    Task("pets", "Pets", "natural", "oxford_iiit_pet", 37, "train[2944:3144]"),
    Task("sun397", "Sun397", "natural", "sun397/tfds:4.*.*", 397, VALIDATION),
    Task("svhn", "SVHN", "natural", "svhn_cropped:3.*.*", 10, "train[65931:66131]"),
    Task("camelyon", "Camelyon", "specialized", "patch_camelyon:2.*.*", 2, VALIDATION),
    Task("eurosat", "EuroSAT", "specialized", "eurosat/rgb:2.*.*", 10, "train[16200:16400]", "train[21600:]"),
    Task("resisc45", "Resisc45", "specialized", "resisc45:3.*.*", 45, "train[18900:19100]", "train[25200:]"),
    Task(
        "retinopathy", "Retinopathy", "specialized", "diabetic_retinopathy_detection/btgraham-300:3.*.*", 5, VALIDATION
    ),
    Task(
        "clevr-count",
        "Clevr-Count",
        num_classes=8,
        label=count_of_objects,
        class_names=tuple(f"{number} objects" for number in range(3, 11)),
        crop=False,
        **CLEVR,
    ),
    Task(
        "clevr-distance",
        "Clevr-Dist",
        num_classes=6,
        label=distance_of_nearest_object,
        class_names=DEPTHS,
        crop=False,
        **CLEVR,
    ),
    Task("dmlab", "DMLab", "structured", "dmlab:2.0.1", 6, VALIDATION, crop=False),
    Task("dsprites-location", "dSpr-Loc", label=sixteenths("label_x_position", 32), crop=False, **DSPRITES),
    Task("dsprites-orientation", "dSpr-Ori", label=sixteenths("label_orientation", 40), **DSPRITES),
    Task(
        "kitti-distance",
        "KITTI-Dist",
        "structured",
        "kitti:3.1.0",
        4,
        VALIDATION,
        label=distance_of_nearest_vehicle,
        class_names=VEHICLES,
        crop=False,
    ),
    Task(
        "smallnorb-azimuth",
        "sNORB-Azim",
        num_classes=18,
        label=_feature("label_azimuth"),
        class_names=AZIMUTHS,
        flip=False,
        **SMALLNORB,
    ),
    Task(
        "smallnorb-elevation",
        "sNORB-Elev",
        num_classes=9,
        label=_feature("label_elevation"),
        class_names=ELEVATIONS,
        **SMALLNORB,
    ),
)
TASKS = {task.name: task for task in _ROWS}
GROUPS = {task.name: task.group for task in _ROWS}
