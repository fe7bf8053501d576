"""The 19 tasks of VTAB-1k, each with 1,000 examples: the paper's section 4.2, appendix B.1.1 and Table 9.

Command:   keras-vit train vtab-dtd --run.folder runs/vtab/dtd
           keras-vit vtab vit/imagenet21k/ViT-L_16                                                  # all tasks
Hardware:  TPU v3-8. Retinopathy, Resisc45, smallNORB and Clevr require downloads of many GB; the first two must be
           downloaded manually, as described by TensorFlow Datasets.
Hours:     0.7 core-days of TPU v3 per task for L/16, computed as in imagenet.py: 2 hours on 8 cores.
Accuracy:  L/16 of ImageNet-21k (Table 9): Caltech101 90.8, CIFAR-100 84.1, DTD 74.1, Flowers102 99.3, Pets 92.7,
           Sun397 61.0, SVHN 80.9; Camelyon 82.5, EuroSAT 95.6, Resisc45 85.2, Retinopathy 75.3; Clevr-Count 70.3,
           Clevr-Dist 56.1, DMLab 41.9, dSpr-Loc 74.7, dSpr-Ori 64.9, KITTI-Dist 79.9, sNORB-Azim 30.5,
           sNORB-Elev 41.7; mean 72.7. Not yet measured here.
"""

from collections.abc import Callable
from dataclasses import dataclass

from keras_vit.recipes.recipe import Architecture, Data, Optimizer, Run, Supervised

# Datasets, splits and labels are those of google-research/task_adaptation (task_adaptation/data), in TensorFlow
# Datasets' notation: 800 images of the training split and 200 of the validation split; for data without one, those
# after the first 60 to 90 % of the training split. Where its version of a dataset is no longer in TensorFlow Datasets
# (Pets 3), the current one is used. Tasks whose labels depend on position or orientation are not cropped or not flipped
# (BiT, arXiv 1912.11370, supplement F).


@dataclass(frozen=True)
class Task:
    """One of the 19 tasks.

    Args:
        name: The name after "vtab/" (datasets) and "vtab-" (recipes).
        title: The name in the paper's Table 9.
        group: "natural", "specialized" or "structured".
        dataset: The name in TensorFlow Datasets.
        num_classes: Number of classes.
        val200: 200 images in TensorFlow Datasets' notation. `train800` are another 800, `train_split` both.
        test_split: Likewise, for the test.
        label: From an example's features to its label, scalar int64; None for the feature "label".
        class_names: Required with `label`.
        max_value: Largest value of a pixel.
        crop, flip: Whether training images may be cropped and flipped.
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
    max_value: int = 255
    crop: bool = True
    flip: bool = True

    train800 = "train[:800]"

    @property
    def train_split(self) -> str:
        return f"{self.train800}+{self.val200}"


def count_objects(features):
    """Clevr: 3 to 10 objects are classes 0 to 7."""
    import tensorflow as tf

    return tf.size(features["objects"]["size"], tf.int64) - 3


def distance_of_nearest_object(features):
    """Clevr: the smallest depth, which is the third pixel coordinate, in 6 intervals."""
    import tensorflow as tf

    return _interval(tf.reduce_min(features["objects"]["pixel_coords"][:, 2]), (8.0, 8.5, 9.0, 9.5, 10.0))


def distance_of_nearest_vehicle(features):
    """KITTI: meters ahead of the camera to the nearest car, van or truck (types 0, 1, 2), in 3 intervals; 3 is none."""
    import tensorflow as tf

    ahead = tf.boolean_mask(features["objects"]["location"][:, 2], features["objects"]["type"] < 3)
    return _interval(tf.reduce_min(tf.concat([ahead, [1000.0]], axis=0)), (8.0, 20.0, 999.0))


def sixteenths(feature: str, num_values: int) -> Callable:
    """dSprites: a feature with `num_values` values, in 16 groups of consecutive ones."""
    return lambda features: features[feature] * 16 // num_values


def _interval(value, edges):
    """Number of edges below the value."""
    import tensorflow as tf

    return tf.math.count_nonzero(value > tf.constant(edges))


def _feature(name):
    return lambda features: features[name]


COUNTS = tuple(f"{count} objects" for count in range(3, 11))
DEPTHS = ("up to 8.0", "8.0 to 8.5", "8.5 to 9.0", "9.0 to 9.5", "9.5 to 10.0", "more than 10.0")
VEHICLES = ("up to 8 m", "8 to 20 m", "more than 20 m", "no vehicle")
SIXTEENTHS = tuple(f"{number} of 16" for number in range(16))
ELEVATIONS = tuple(f"{degrees} degrees" for degrees in range(30, 75, 5))
AZIMUTHS = tuple(f"{degrees} degrees" for degrees in range(0, 360, 20))

VALIDATION = "validation[:200]"
CLEVR = ("structured", "clevr:3.*.*")
CLEVR_SPLITS = ("train[63000:63200]", "validation")
DSPRITES = ("structured", "dsprites:2.*.*", 16, "train[589824:590024]", "train[663552:]")
SMALLNORB = ("structured", "smallnorb:2.*.*")
SMALLNORB_SPLITS = ("test[:200]", "test[50%:]")

# fmt: off
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
    Task("retinopathy", "Retinopathy", "specialized", "diabetic_retinopathy_detection/btgraham-300:3.*.*", 5,
         VALIDATION),
    Task("clevr-count", "Clevr-Count", *CLEVR, 8, *CLEVR_SPLITS, count_objects, COUNTS, crop=False),
    Task("clevr-distance", "Clevr-Dist", *CLEVR, 6, *CLEVR_SPLITS, distance_of_nearest_object, DEPTHS, crop=False),
    Task("dmlab", "DMLab", "structured", "dmlab:2.0.1", 6, VALIDATION, crop=False),
    Task("dsprites-location", "dSpr-Loc", *DSPRITES, sixteenths("label_x_position", 32), SIXTEENTHS, max_value=1,
         crop=False, flip=False),
    Task("dsprites-orientation", "dSpr-Ori", *DSPRITES, sixteenths("label_orientation", 40), SIXTEENTHS, max_value=1,
         flip=False),
    Task("kitti-distance", "KITTI-Dist", "structured", "kitti:3.1.0", 4, VALIDATION, "test",
         distance_of_nearest_vehicle, VEHICLES, crop=False),
    Task("smallnorb-azimuth", "sNORB-Azim", *SMALLNORB, 18, *SMALLNORB_SPLITS, _feature("label_azimuth"), AZIMUTHS,
         flip=False),
    Task("smallnorb-elevation", "sNORB-Elev", *SMALLNORB, 9, *SMALLNORB_SPLITS, _feature("label_elevation"),
         ELEVATIONS),
)
# fmt: on
TASKS = {task.name: task for task in _ROWS}
GROUPS = {task.name: task.group for task in _ROWS}


def _vtab(task: Task) -> Supervised:
    """The same settings for all tasks (Table 4), except for crops and flips that would change the label."""
    return Supervised(
        architecture=Architecture("L/16", dropout=0.1),  # dropout as in vit_jax
        weights="vit/imagenet21k/ViT-L_16",
        data=Data(
            dataset=f"vtab/{task.name}",
            train_split=task.train_split,
            # The settings are fixed, so the 200 validation examples are used for training too.
            validation_split=None,
            test_split=task.test_split,
            image_size=384,
            batch_size=512,
            crop="resize" if task.crop else "none",
            resize_size=448,
            flip=task.flip,
            evaluation_resize="squash",
            cache=True,
        ),
        optimizer=Optimizer(name="sgd", learning_rate=0.01, decay="cosine", warmup_steps=500, global_clipnorm=1.0),
        run=Run(precision="mixed_bfloat16", steps_per_execution=50, epoch_steps=2_500, checkpoint_steps=500),
        total_steps=2_500,
    )


RECIPES = {f"vtab-{name}": _vtab(task) for name, task in TASKS.items()}
# Fields of `keras_vit.recipes.runs.learning_rate_sweep.Sweep` by recipe: the 800 and 200 images of the protocol.
SWEEPS = {
    f"vtab-{name}": {"tuning_split": task.train800, "held_out_split": task.val200} for name, task in TASKS.items()
}
