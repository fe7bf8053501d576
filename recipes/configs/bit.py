"""The paper's ResNet baseline, fine-tuned by BiT-HyperRule: "Big Transfer" (arXiv 1912.11370), section 3.3.

Command:   keras-vit train bit-cifar10 --run.folder runs/bit-cifar10
           keras-vit train bit-pets --weights bit/BiT-M-R152x4 --data.resize-size 512 --data.image-size 480
Hardware:  One GPU with --optimizer.accumulation-steps 8, or TPU v3-8.
Hours:     Not yet measured.
Accuracy:  R50x1 of ImageNet-21k, CIFAR-10 97.3 and CIFAR-100 86.5 (README of google-research/big_transfer); ImageNet,
           Pets and Flowers: not yet measured.
"""

from dataclasses import replace

from keras_vit.recipes.recipe import Architecture, Augment, Data, Optimizer, Run, Supervised

SMALL, LARGE = 20_000, 500_000  # training images


def bit_hyperrule(num_examples: int, image_area: int) -> Supervised:
    """BiT-HyperRule: the recipe for a dataset, by its number of training images and their area in pixels.

    Learning rate 0.003 at batch size 512, divided by 10 after 30, 60 and 90 % of the steps; mixup 0.1 unless the
    dataset is small; no weight decay (section 3.3). The warmup is that of the code (bit_hyperrule.py), which decays
    small datasets after 40, 60 and 80 % and crops 480 pixels from 512 for large images. In the paper only R152x4 has
    these sizes; the others crop 384 from 448.
    """
    small_data, small_images = num_examples < SMALL, image_area < 96 * 96
    steps = 500 if small_data else 10_000 if num_examples < LARGE else 20_000
    return Supervised(
        architecture=Architecture("BiT-R50x1"),
        weights="bit/BiT-M-R50x1",
        data=Data(
            image_size=128 if small_images else 384,
            batch_size=512,
            crop="resize",
            resize_size=160 if small_images else 448,
            augment=Augment(mixup_alpha=0.0 if small_data else 0.1),
            evaluation_resize="squash",
        ),
        optimizer=Optimizer(
            name="sgd",
            learning_rate=0.003,
            decay="staircase",
            staircase=(0.3, 0.6, 0.9),
            warmup_steps=100 if small_data else 500,
            weight_decay=0.0,
            global_clipnorm=None,
        ),
        run=Run(precision="mixed_bfloat16", steps_per_execution=50, epoch_steps=250 if small_data else 2_500),
        total_steps=steps,
    )


def _recipe(dataset, num_examples, image_area, test="test"):
    recipe = bit_hyperrule(num_examples, image_area)
    splits = {"train_split": "train", "validation_split": None, "test_split": test}
    return replace(recipe, data=replace(recipe.data, dataset=dataset, **splits))


# All training images, as in finetune.py. Images of Pets and Flowers are larger than 96 x 96 pixels.
RECIPES = {
    "bit-imagenet": _recipe("imagenet2012", 1_281_167, 224 * 224, test="validation"),
    "bit-cifar10": _recipe("cifar10", 50_000, 32 * 32),
    "bit-cifar100": _recipe("cifar100", 50_000, 32 * 32),
    "bit-pets": _recipe("oxford_iiit_pet", 3_680, 224 * 224),
    "bit-flowers": _recipe("oxford_flowers102", 1_020, 224 * 224),
}
