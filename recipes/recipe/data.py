"""The section of a recipe that describes its data. No TensorFlow import here."""

import re
from dataclasses import dataclass, field
from typing import ClassVar, Literal

from keras_vit.images import as_size, shortest_size
from keras_vit.images.pixel_range import checked_range
from keras_vit.recipes.recipe.errors import RecipeError
from keras_vit.recipes.recipe.values import Checked

LARGEST_MAGNITUDES = {"big_vision": 30.0, "timm": 10.0}  # of RandAugment


@dataclass(frozen=True)
class Augment(Checked):
    """Data augmentation beyond crop and flip; all off by default.

    Args:
        randaugment_layers: Operations per image of RandAugment (arXiv 1909.13719); 0 for no RandAugment.
        randaugment_magnitude: Strength of these operations, in [0, 30]; of "timm", the mean strength, in [0, 10].
        randaugment_policy: "big_vision" (AugReg: 16 operations, each drawn one is applied) or "timm" (DeiT's
            rand-mstd0.5-inc1: 15 operations whose effect increases with the magnitude, each applied with probability
            0.5 at a magnitude drawn with standard deviation 0.5).
        autoaugment: AutoAugment's policy for "imagenet" or "cifar10" (arXiv 1805.09501); None for none.
        three_augment: 3-Augment (DeiT III, arXiv 2204.07118): grayscale, solarization or Gaussian blur, then
            brightness, contrast and saturation times factors in [0.7, 1.3].
        erasing: Probability of erasing a rectangle of an image (arXiv 1708.04896).
        mixup_alpha: Parameter of the Beta distribution of mixup (arXiv 1710.09412); 0 for no mixup.
        cutmix_alpha: Parameter of the Beta distribution of CutMix (arXiv 1905.04899); 0 for no CutMix. With both, one
            of them is drawn for each batch.
        mix_probability: Probability that mixup or CutMix is applied to a batch, if they are on.
        repeats: Copies of each image in a batch, each with its own crop and augmentation (repeated augmentation, arXiv
            1902.05509; DeiT: 3). A run of as many steps sees as many images, of which fewer are different.
    """

    place: ClassVar[str] = "data.augment."

    randaugment_layers: int = 0
    randaugment_magnitude: float = 10.0
    randaugment_policy: Literal["big_vision", "timm"] = "big_vision"
    autoaugment: Literal["imagenet", "cifar10"] | None = None
    three_augment: bool = False
    erasing: float = 0.0
    mixup_alpha: float = 0.0
    cutmix_alpha: float = 0.0
    mix_probability: float = 1.0
    repeats: int = 1

    @property
    def mixes(self) -> bool:
        """Whether images are mixed, by mixup or CutMix."""
        return self.mixup_alpha > 0 or self.cutmix_alpha > 0

    def _check_policies(self):
        off = {"randaugment_layers": 0, "autoaugment": None, "three_augment": False}
        chosen = [name for name, nothing in off.items() if getattr(self, name) != nothing]
        if len(chosen) > 1:
            raise RecipeError(
                "RandAugment, AutoAugment and 3-Augment exclude each other.",
                {f"data.augment.{name}": getattr(self, name) for name in chosen},
                [{f"data.augment.{name}": off[name] for name in chosen if name != kept} for kept in chosen],
            )

    def _check_magnitude(self):
        policy, largest = self.randaugment_policy, LARGEST_MAGNITUDES[self.randaugment_policy]
        if self.randaugment_magnitude > largest:
            raise RecipeError(
                f"The magnitude of RandAugment's policy {policy!r} is in [0, {largest:g}].",
                {"data.augment.randaugment_magnitude": self.randaugment_magnitude},
                {"data.augment.randaugment_magnitude": largest},
            )


@dataclass(frozen=True)
class Data(Checked):
    """The dataset, its splits, and the preprocessing of images.

    Args:
        dataset: "digits" (scikit-learn's, 8 x 8 pixels); any name of TensorFlow Datasets; "vtab/<task>", see
            `keras_vit.recipes.configs.vtab`; "folder:/path" with /path/<split>/<class>/<image>; "csv:/path"
            with /path/<split>.csv, several labels per image; "hf:owner/name", Parquet files of the Hugging Face Hub, or
            "hf:/path"; "tfrecord:/path", a folder
            written by `keras-vit prepare` or a glob of other TFRecords, local or on gs://; see docs/data.md.
        train_split, validation_split, test_split: In the notation of TensorFlow Datasets, such as "train[:99%]".
            Without a validation_split, there is no evaluation during training; without a test_split none after it.
        data_dir: Folder of the prepared datasets; None for the default of TensorFlow Datasets.
        image_size: Height and width of the model's input image in pixels; one number for a square.
        batch_size: Global batch size: images per step, over all replicas.
        labels_per_class: Train on this number of images of each class only, chosen by the seed; None for all.
        crop: Crop of training images: "inception" (random height and aspect ratio, the paper's pre-training),
            "torchvision" (uniform area and logarithm of the aspect ratio: DeiT, MAE), "resize" (squash to
            `resize_size`, then a random part of `image_size`: BiT, and the paper's fine-tuning), "pad" (squash, then
            a random part of the image padded by an eighth of its sides with black: CIFAR), "simple" (resized until it
            covers `image_size`, then a random part of the image with 4 mirrored pixels around it: DeiT III) or "none"
            (squash).
        min_crop_area: Smallest fraction of the image's area in an "inception" or "torchvision" crop.
        resize_size: Size before the random crop of "resize", as `image_size`.
        scaled_decoding: Decode crops of JPEG files at 1/2, 1/4 or 1/8 of their size where that leaves `image_size`:
            for photographs of many megapixels. It changes pixels as `antialias` does, see docs/data.md.
        flip: Flip half of the training images horizontally.
        augment: Further data augmentation.
        interpolation: Interpolation of every resize.
        antialias: Smooth images when they shrink, as Pillow does, in training and evaluation.
        mean, std: Per channel, of pixels in [0, 1]. The paper's are 0.5 and 0.5, which scale pixels to [-1, 1].
        evaluation_resize, evaluation_crop: Evaluation images, see `keras_vit.Preprocessing`: squash, or fit the shorter
            side, or do so as big_vision; fraction of the side that the central crop keeps.
        shuffle_images: Size of the shuffle buffer, in images.
        cache: Cache decoded images in memory.
        service: Address of a tf.data service, "grpc://host:port", whose workers decode and augment the images; None to
            do so in this process.
        max_corrupt: Largest allowed fraction of undecodable images, which are skipped; more stop the run.
        group: Regular expression on the path of an image in a folder without splits, such as "patient(\\d+)": images
            with the same match, or the same first part in parentheses, are on one side of the split. Or a CSV file with
            the columns file,group: "<class>/<image>" and what it belongs to; other images are groups of their own.
            With a column split, it is that of the image; other images are in none.
        pixel_range: Low and high value of gray images with 16 bits, which become 0 and 255, see
            `keras_vit.Preprocessing`: 0 4095 for 12 bits. By default their upper 8 bits are used.
        converted: Folder in which `keras-vit finetune` stored those images of a folder that TensorFlow does not read.
    """

    place: ClassVar[str] = "data."

    dataset: str = "digits"
    train_split: str = "train"
    validation_split: str | None = "validation"
    test_split: str | None = "test"
    data_dir: str | None = None
    image_size: int | tuple[int, int] = 224
    batch_size: int = 512
    labels_per_class: int | None = None
    crop: Literal["inception", "torchvision", "resize", "pad", "simple", "none"] = "inception"
    min_crop_area: float = 0.05
    resize_size: int | tuple[int, int] = 448
    scaled_decoding: bool = False
    flip: bool = True
    augment: Augment = field(default_factory=Augment)
    interpolation: Literal["bilinear", "bicubic"] = "bilinear"
    antialias: bool = False
    mean: tuple[float, float, float] = (0.5, 0.5, 0.5)
    std: tuple[float, float, float] = (0.5, 0.5, 0.5)
    evaluation_resize: Literal["squash", "shortest", "shortest_area"] = "squash"
    evaluation_crop: float = 1.0
    shuffle_images: int = 50_000
    cache: bool = False
    service: str | None = None
    max_corrupt: float = 0.01
    group: str | None = None
    pixel_range: tuple[int, int] | None = None
    converted: str | None = None

    def __post_init__(self):
        for name in ("image_size", "resize_size"):
            size = getattr(self, name)
            if isinstance(size, tuple | list) and len(size) == 2:
                object.__setattr__(self, name, shortest_size(size))
        super().__post_init__()

    @property
    def input_size(self) -> tuple[int, int]:
        """(height, width) of the model's input image."""
        return as_size(self.image_size)

    def _check_group(self):
        if self.group is None:
            return
        if not self.dataset.startswith("folder:"):
            raise RecipeError("Groups are for folders of images.", {"data.group": self.group}, {"data.group": None})
        if self.group.endswith(".csv"):
            return  # a table
        try:
            re.compile(self.group)
        except re.error as error:
            raise RecipeError(f"Expected a regular expression: {error}.", {"data.group": self.group}) from error

    def _check_resize_size(self):
        if self.crop != "resize":
            return
        received = {"data.image_size": self.image_size, "data.resize_size": self.resize_size}
        if isinstance(self.image_size, tuple) and not isinstance(self.resize_size, tuple):
            enlarged = self.resize_size / max(self.image_size)
            sides = tuple(round(side * max(1.0, enlarged)) for side in self.image_size)
            raise RecipeError(
                "A rectangle is cropped from images that were resized to a height and a width, too.",
                received,
                {"data.resize_size": sides},
            )
        sides = tuple(map(max, zip(as_size(self.resize_size), self.input_size)))
        if sides != as_size(self.resize_size):
            raise RecipeError(
                "Images are cropped from resized ones, which must not be smaller.",
                received,
                {"data.resize_size": shortest_size(sides)},
            )

    def _check_pixel_range(self):
        if self.pixel_range is None:
            return
        try:
            checked_range(self.pixel_range)
        except ValueError as error:
            raise RecipeError(f"{error}", {"data.pixel_range": self.pixel_range}) from error

    def _check_scaled_decoding(self):
        if self.scaled_decoding and self.crop not in ("inception", "torchvision"):
            raise RecipeError(
                "Scaled decoding is for the crops 'inception' and 'torchvision', which draw windows of an image.",
                {"data.scaled_decoding": True, "data.crop": self.crop},
                {"data.scaled_decoding": False},
            )
        if self.scaled_decoding and self.cache:
            raise RecipeError(
                "The cache stores images decoded at their full size.",
                {"data.scaled_decoding": True, "data.cache": True},
                [{"data.cache": False}, {"data.scaled_decoding": False}],
            )
