"""Fine-tuning on ImageNet, CIFAR-10, CIFAR-100, Pets and Flowers at 384 pixels: the paper's Table 4.

Command:   keras-vit train finetune-cifar10 --run.folder runs/cifar10
           keras-vit sweep finetune-cifar10 --recipe.run.folder runs/cifar10-sweep  # rates of Table 4, then 3 seeds
           keras-vit train finetune-pets --weights augreg/B_16-i21k-300ep-lr_0.001-aug_medium1-wd_0.1-do_0.0-sd_0.0
           keras-vit finetune FOLDER  # finetune-small, with the settings of recipes/configs/small_folder.py
Hardware:  TPU v3-8, or one GPU with --optimizer.accumulation-steps 8.
Hours:     B/16: ImageNet 6.5 and CIFAR 2.2 on the authors' A100 host (README of google-research/vision_transformer).
           Pets and Flowers: a twentieth of CIFAR. L/16 at 512 and H/14 at 518 on ImageNet: 9.7 and 27 core-days of TPU
           v3, computed as in imagenet.py.
Accuracy:  From the default weights: ImageNet 83.97, CIFAR-10 98.95, CIFAR-100 91.67, Pets 94.43, Flowers 99.38 (paper,
           Table 5); ImageNet 84.53, CIFAR-10 99.02, CIFAR-100 92.06 (README above). L/16 at 512: 85.30 (Table 2).
           H/14 at 518: 88.55 from the unpublished JFT weights (Table 2); 85.13 from ImageNet-21k weights, at 384 and
           without EMA (Table 5). Not yet measured here.
"""

from dataclasses import replace

from keras_vit.recipes.recipe import Architecture, Data, Optimizer, Run, Supervised

# Squash to 448 x 448, crop 384 x 384, flip; evaluate on squashed images (appendix B.1.1, as BiT).
DATA = Data(image_size=384, batch_size=512, crop="resize", resize_size=448, evaluation_resize="squash")
SGD = Optimizer(name="sgd", decay="cosine", weight_decay=0.0, global_clipnorm=1.0)
LONG = Run(precision="mixed_bfloat16", steps_per_execution=50, epoch_steps=2_500)
SHORT = Run(precision="mixed_bfloat16", steps_per_execution=25, epoch_steps=250, checkpoint_steps=250)


def _finetune(dataset, steps, rate, warmup_steps, run, test="test"):
    return Supervised(
        weights="vit/imagenet21k/ViT-B_16",
        # All training images, as in the paper's final runs. No image is left for a validation curve; learning rates
        # are chosen on the splits in SWEEPS.
        data=replace(DATA, dataset=dataset, train_split="train", validation_split=None, test_split=test),
        # The paper does not report the warmup; it is that of the authors' code (vit_jax and big_vision, configs/).
        optimizer=replace(SGD, learning_rate=rate, warmup_steps=warmup_steps),
        run=run,
        total_steps=steps,
    )


# Default learning rates: vit_jax; for Pets and Flowers, big_vision's configs/transfer.py. As there, Flowers trains on
# the official training split of 1,020 images; "train+validation" has 2,040.
IMAGENET = _finetune("imagenet2012", 20_000, 0.03, 500, LONG, test="validation")
# For 30 to 5,000 images, not of the paper: `keras-vit finetune` sets what depends on their number, the weights and the
# machine (recipes/configs/small_folder.py). The weights are those of `keras-vit classify`. Layers near the input change
# little, as in BEiT's fine-tuning (arXiv 2106.08254); evaluation during the training would take longer than the
# training.
SMALL = Supervised(
    architecture=Architecture("S/16"),
    weights="augreg/S_16-i21k-300ep-lr_0.001-aug_light1-wd_0.03-do_0.0-sd_0.0--imagenet2012-steps_20k-lr_0.03-res_224",
    data=Data(
        dataset="folder:images",
        validation_split=None,
        batch_size=32,
        # Crops of a third of the image or more: the paper's smallest, a twentieth, would miss many objects.
        min_crop_area=0.35,
        # `keras-vit finetune` names damaged files first. Of 6 test images, one is already 17 %.
        max_corrupt=0.5,
    ),
    optimizer=Optimizer(name="adamw", learning_rate=4e-4, warmup_steps=20, weight_decay=0.05, layer_decay=0.75),
    run=Run(precision="mixed_bfloat16", epoch_steps=50, checkpoint_steps=50, keep_checkpoints=1),
    total_steps=200,
)
RECIPES = {
    "finetune-small": SMALL,
    "finetune-imagenet": IMAGENET,
    "finetune-cifar10": _finetune("cifar10", 10_000, 0.01, 500, LONG),
    "finetune-cifar100": _finetune("cifar100", 10_000, 0.03, 500, LONG),
    "finetune-pets": _finetune("oxford_iiit_pet", 500, 0.003, 100, SHORT),
    "finetune-flowers": _finetune("oxford_flowers102", 500, 0.003, 100, SHORT),
    # Table 2: higher resolution and exponential moving average of the weights (section 4.1). Dropout is that of vit_jax
    # for these models. Sizes before and after the crop keep the ratio of 448 to 384.
    "finetune-imagenet-l16-512": replace(
        IMAGENET,
        architecture=Architecture("L/16", dropout=0.1),
        weights="vit/imagenet21k/ViT-L_16",
        data=replace(IMAGENET.data, image_size=512, resize_size=597),
        optimizer=replace(IMAGENET.optimizer, ema_momentum=0.9999),
    ),
    "finetune-imagenet-h14-518": replace(
        IMAGENET,
        architecture=Architecture("H/14", dropout=0.1),
        weights="vit/imagenet21k/ViT-H_14",
        data=replace(IMAGENET.data, image_size=518, resize_size=604),
        optimizer=replace(IMAGENET.optimizer, ema_momentum=0.9999),
    ),
}


def _sweep(percent, rates=(0.001, 0.003, 0.01, 0.03)):
    """Trains on this percentage of the training images and holds out the rest."""
    return {"learning_rates": rates, "tuning_split": f"train[:{percent}%]", "held_out_split": f"train[{percent}%:]"}


# Fields of `keras_vit.recipes.runs.learning_rate_sweep.Sweep` by recipe (Table 4 and appendix B.1.1). Table 4 lists
# 0.06 for ImageNet; the text lists it for ResNets and hybrids only.
_IMAGENET_SWEEP = _sweep(99, (0.003, 0.01, 0.03, 0.06))
SWEEPS = {
    "finetune-imagenet": _IMAGENET_SWEEP,
    "finetune-imagenet-l16-512": _IMAGENET_SWEEP,
    "finetune-imagenet-h14-518": _IMAGENET_SWEEP,
    "finetune-cifar10": _sweep(98),
    "finetune-cifar100": _sweep(98),
    "finetune-pets": _sweep(90),
    "finetune-flowers": _sweep(90),
    "finetune-small": _sweep(80),  # 2 % of a few hundred images lack some classes
}
