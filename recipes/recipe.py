"""What a training run is: typed dataclasses, from which the command line is made. Nothing here imports TensorFlow.

A duration or a size carries its unit in its name; steps are optimizer updates, batches are global (over all replicas).
"""

from dataclasses import dataclass, field
from typing import Literal


@dataclass(frozen=True)
class Architecture:
    """The model, see `keras_vit.VisionTransformer`; the image size comes from the data.

    Args:
        variant: As for `keras_vit.ViT`, such as "B/16" or "R50+B/16", or a BiT: "BiT-R50x1".
        depth, width, mlp_dim, num_heads: Instead of the variant's.
        pooling: "token", "gap" or "map".
        representation_size: Width of a hidden tanh layer before the head, as in the paper's pre-training; None for no
            such layer.
        position_embedding: See `VisionTransformer`.
        dropout, stochastic_depth: Rates.
    """

    variant: str = "B/16"
    depth: int | None = None
    width: int | None = None
    mlp_dim: int | None = None
    num_heads: int | None = None
    pooling: Literal["token", "gap", "map"] = "token"
    representation_size: int | None = None
    position_embedding: Literal["learned_1d", "learned_2d", "relative", "sincos_2d", "none"] = "learned_1d"
    dropout: float = 0.0
    stochastic_depth: float = 0.0


@dataclass(frozen=True)
class Augment:
    """Changes of training images beyond crop and flip; all are off by default.

    Args:
        randaugment_layers, randaugment_magnitude: RandAugment (arXiv 1909.13719): so many operations an image, of
            this strength in [0, 30]; 0 layers for none.
        autoaugment: AutoAugment's policy for ImageNet (arXiv 1805.09501).
        erasing: Probability that a rectangle of an image is erased (arXiv 1708.04896).
        mixup_alpha: Of the Beta distribution that mixes two images (arXiv 1710.09412); 0 for no mixup.
        cutmix_alpha: The same for CutMix (arXiv 1905.04899). With both, either is drawn for each batch.
    """

    randaugment_layers: int = 0
    randaugment_magnitude: float = 10.0
    autoaugment: bool = False
    erasing: float = 0.0
    mixup_alpha: float = 0.0
    cutmix_alpha: float = 0.0


@dataclass(frozen=True)
class Data:
    """The images and how they reach the model.

    Args:
        dataset: "digits" (scikit-learn's, 8 x 8 pixels); any name of TensorFlow Datasets; "vtab/<task>", see
            `keras_vit.recipes.data.vtab`; "folder:/path" with /path/<split>/<class>/<image>; "tfrecord:/path", a folder
            that `keras-vit prepare` wrote or a glob of other TFRecords, local or on gs://; see docs/data.md.
        train_split, validation_split, test_split: In TensorFlow Datasets' notation, such as "train[:99%]". No
            validation_split means no evaluation during training.
        data_dir: Where prepared data sets are kept; None for TensorFlow Datasets' own place.
        image_size: Side of the square image that the model sees, in pixels.
        batch_size: Images an update, over all replicas.
        labels_per_class: Train on so many images of each class only, chosen by the seed; None for all.
        crop: Of training images: "inception" (random area and aspect, the paper's pre-training), "resize" (squash to
            `resize_size`, then a random square of `image_size`: BiT's, and the paper's fine-tuning) or "none" (squash).
        min_crop_area: Smallest share of the image that an "inception" crop keeps.
        resize_size: Pixels, of "resize".
        flip: Mirror half of the training images.
        augment: Further changes of training images.
        interpolation: Of every resize.
        mean, std: Of each channel of pixels in [0, 1]; the paper's are 0.5 and 0.5, which gives [-1, 1].
        evaluation_resize, evaluation_crop: Images to evaluate on, see `keras_vit.Preprocessing`: squashed, or the
            shorter side fitted; the share of the side that a central crop keeps.
        shuffle_images: Size of the shuffle buffer.
        cache: Keep decoded images in memory.
        service: Address of a tf.data service, "grpc://host:port", whose workers prepare the images; None for here.
        max_corrupt: Largest share of images that cannot be decoded and are left out; more stop the run.
    """

    dataset: str = "digits"
    train_split: str = "train"
    validation_split: str | None = "validation"
    test_split: str = "test"
    data_dir: str | None = None
    image_size: int = 224
    batch_size: int = 512
    labels_per_class: int | None = None
    crop: Literal["inception", "resize", "none"] = "inception"
    min_crop_area: float = 0.05
    resize_size: int = 448
    flip: bool = True
    augment: Augment = field(default_factory=Augment)
    interpolation: Literal["bilinear", "bicubic"] = "bilinear"
    mean: tuple[float, float, float] = (0.5, 0.5, 0.5)
    std: tuple[float, float, float] = (0.5, 0.5, 0.5)
    evaluation_resize: Literal["squash", "shortest"] = "squash"
    evaluation_crop: float = 1.0
    shuffle_images: int = 50_000
    cache: bool = False
    service: str | None = None
    max_corrupt: float = 0.01


@dataclass(frozen=True)
class Optimizer:
    """How weights change: linear warm-up from 0, then decay; gradients are summed over replicas, then clipped.

    Args:
        name: "sgd" has momentum 0.9 (the paper's fine-tuning); "adam" and "adamw" have beta 0.9 and 0.999.
        learning_rate: Peak.
        decay: "cosine" to 0; "linear" to 1e-5, as the paper's code; "constant"; or "staircase": a tenth at each share
            of the run that `staircase` names (BiT).
        staircase: Shares of `total_steps`, of "staircase".
        warmup_steps: Updates over which the rate grows.
        weight_decay: Decoupled, times the rate, on kernels only; of "adamw" and "sgd". See docs/recipes.md.
        global_clipnorm: Largest norm of all gradients together; None for no clipping.
        accumulation_steps: Cut each replica's batch into so many parts, one after the other in memory, and update once.
        ema_momentum: Of the running mean of the weights (Polyak), which evaluations and results then use; None for
            none. The paper's ImageNet runs have 0.9999.
        layer_decay: Factor on the rate from layer to layer, from the head down; None for none. 0.65 to 0.75 is usual.
    """

    name: Literal["adam", "adamw", "sgd"] = "adam"
    learning_rate: float = 1e-3
    decay: Literal["cosine", "linear", "constant", "staircase"] = "cosine"
    staircase: tuple[float, ...] = (0.3, 0.6, 0.9)
    warmup_steps: int = 0
    weight_decay: float = 0.0
    global_clipnorm: float | None = 1.0
    accumulation_steps: int = 1
    ema_momentum: float | None = None
    layer_decay: float | None = None


@dataclass(frozen=True)
class Run:
    """Where and how exactly a run is computed.

    Args:
        strategy: "auto" takes a TPU if there is one, else the workers of TF_CONFIG, else all GPUs, else the processor.
        precision: Of the model: variables stay float32 in "mixed_bfloat16".
        remat: Part of each Transformer block that the backward pass computes again instead of keeping it: less memory,
            more arithmetic, the same numbers. See `keras_vit.layers.EncoderBlock` and docs/tpu_memory.md.
        seed: Of initial weights, data order, crops, masks and dropout.
        steps_per_execution: Updates between two visits to Python; more is faster for small models and on TPUs.
        epoch_steps: Updates between two evaluations, lines of the progress bar and points of the curves.
        folder: Where checkpoints, the recipe, logs and the trained model are kept, local or "gs://..."; None for
            nowhere.
        checkpoint_steps: Updates between two checkpoints.
        keep_checkpoints: Number of checkpoints that stay.
        resume: Go on from the last checkpoint in the folder, if there is one.
        max_nonfinite_steps: A step whose gradients are not finite changes nothing; so many in a row stop the run.
        tensorboard: Write scalars and images for TensorBoard into the folder.
    """

    strategy: Literal["auto", "tpu", "mirrored", "multi-worker", "one-device"] = "auto"
    precision: Literal["float32", "mixed_bfloat16"] = "float32"
    remat: Literal["mlp", "attention", "block"] | None = None
    seed: int = 0
    steps_per_execution: int = 1
    epoch_steps: int = 1_000
    folder: str | None = None
    checkpoint_steps: int = 1_000
    keep_checkpoints: int = 3
    resume: bool = False
    max_nonfinite_steps: int = 10
    tensorboard: bool = False


@dataclass(frozen=True)
class MaskedPatch:
    """Masked-patch pre-training, the paper's appendix B.1.2: its optimizer and schedule are the defaults.

    Args:
        target: What is predicted of a corrupted patch: its mean color at 3 bits a channel, the 3-bit colors of the
            patch reduced to 4 x 4 pixels, or its pixels (L2 regression).
        corrupted_fraction: Share of the patches that are corrupted, in every image exactly.
        masked_fraction: Share of the corrupted patches whose embedding becomes the learnable [mask] embedding.
        replaced_fraction: Share that becomes another patch's embedding; the rest is kept.
        total_steps: Updates.
    """

    architecture: Architecture = field(default_factory=Architecture)
    data: Data = field(default_factory=lambda: Data(batch_size=4096))
    optimizer: Optimizer = field(default_factory=lambda: Optimizer(learning_rate=2e-4, warmup_steps=10_000))
    run: Run = field(default_factory=Run)
    target: Literal["mean_color", "downsampled_color", "pixels"] = "mean_color"
    corrupted_fraction: float = 0.5
    masked_fraction: float = 0.8
    replaced_fraction: float = 0.1
    total_steps: int = 1_000_000


@dataclass(frozen=True)
class Supervised:
    """Training of a classifier, from scratch or from weights; the defaults are the paper's fine-tuning (Table 4).

    Args:
        weights: What `keras_vit.load` takes; None to start from random weights. Weights say what the model is: of the
            architecture only dropout and stochastic depth count then. Positions are resized, the head starts at zeros.
        loss: "softmax", or "sigmoid" (the paper's pre-training: summed over classes).
        label_smoothing: In [0, 1), of "softmax".
        head_bias: First value of the head's biases; the authors' code has -10 with "sigmoid".
        total_steps: Updates; or
        total_epochs: passes over the training images. One of both is None.
    """

    architecture: Architecture = field(default_factory=Architecture)
    weights: str | None = None
    data: Data = field(default_factory=lambda: Data(image_size=384, crop="resize"))
    optimizer: Optimizer = field(default_factory=lambda: Optimizer(name="sgd", learning_rate=0.03, warmup_steps=500))
    run: Run = field(default_factory=Run)
    loss: Literal["softmax", "sigmoid"] = "softmax"
    label_smoothing: float = 0.0
    head_bias: float = 0.0
    total_steps: int | None = 20_000
    total_epochs: float | None = None


@dataclass(frozen=True)
class Distillation(Supervised):
    """Training of a classifier with a distillation token that listens to a teacher (DeiT, arXiv 2012.12877).

    Args:
        teacher: A Keras model (.keras) or the folder of a SavedModel, from images as the student sees them to logits.
        distillation: "hard" (the teacher's choice as a label) or "soft" (its probabilities).
        temperature: Of "soft".
        distillation_alpha: Weight of the teacher's part of the loss: 0.5 of "hard"; DeiT's "soft" has 0.1.
    """

    teacher: str | None = None
    distillation: Literal["hard", "soft"] = "hard"
    temperature: float = 3.0
    distillation_alpha: float = 0.5
