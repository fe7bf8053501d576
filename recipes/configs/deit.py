"""DeiT on ImageNet, with and without a teacher: "Training data-efficient image transformers" (arXiv 2012.12877).

Command:   keras-vit train deit-s16 --run.folder gs://my-bucket/runs/deit-s16
           keras-vit train deit-s16-hard --teacher teacher.keras --run.folder ...
           keras-vit train deit-s16-hard --no-distillation-token --teacher teacher.keras --run.folder ...
           keras-vit train deit-b16-384 --weights gs://my-bucket/runs/deit-b16/model.keras
Hardware:  TPU v3-8 and up.
Hours:     Core-days of TPU v3, computed as in imagenet.py: Ti/16 1.3, S/16 4.6, B/16 18, B/16 at 384 5.6; a teacher
           adds a forward pass.
Accuracy:  Top-1 of Ti/16, S/16, B/16 (the paper's table 3): without a teacher 72.2, 79.8, 81.8; soft, without a
           distillation token, 72.2, 79.8, 81.8; hard without a token 74.3, 80.9, 83.0; hard, mean of both heads, 74.5,
           81.2, 83.4; B/16 at 384 83.1 (published weights: 82.9). The teacher has 82.9 %. Not yet measured here.
"""

from dataclasses import replace

from keras_vit.images.pixel_range import IMAGENET
from keras_vit.recipes.configs.imagenet import RUN
from keras_vit.recipes.recipe import Architecture, Augment, Data, Distillation, Optimizer, Supervised

IMAGES = 1_281_167
BATCH = 1024

# The code changes the learning rate once an epoch, from 1e-6 to 1e-5; here it changes at every step and starts and ends
# at 0. All training images are used, as there.
DATA = Data(
    dataset="imagenet2012",
    train_split="train",
    validation_split=None,  # the validation images are the test images
    test_split="validation",
    image_size=224,
    batch_size=BATCH,
    crop="torchvision",
    min_crop_area=0.08,
    augment=Augment(
        randaugment_layers=2,
        randaugment_magnitude=9,
        randaugment_policy="timm",
        erasing=0.25,
        mixup_alpha=0.8,
        cutmix_alpha=1.0,
        repeats=3,
    ),
    interpolation="bicubic",
    antialias=True,
    mean=IMAGENET["mean"],
    std=IMAGENET["std"],
    evaluation_resize="shortest",
    evaluation_crop=0.875,
)
OPTIMIZER = Optimizer(
    name="adamw",
    learning_rate=5e-4 * BATCH / 512,
    decay="cosine",
    warmup_steps=5 * IMAGES // BATCH,
    weight_decay=0.05,
    global_clipnorm=None,
)
DEIT = Supervised(data=DATA, optimizer=OPTIMIZER, run=RUN, label_smoothing=0.1, total_steps=None, total_epochs=300)
HARD = Distillation(
    data=DATA,
    optimizer=OPTIMIZER,
    run=RUN,
    label_smoothing=0.1,
    total_steps=None,
    total_epochs=300,
    distillation="hard",
    distillation_alpha=0.5,
)
# Table 3 of the paper: "usual distillation" has no distillation token. Its code trains with a token only.
SOFT = replace(HARD, distillation="soft", temperature=3.0, distillation_alpha=0.1, distillation_token=False)

MODELS = {
    name: Architecture(variant, stochastic_depth=0.1, initialization="deit", gelu="erf")
    for name, variant in (("ti16", "Ti/16"), ("s16", "S/16"), ("b16", "B/16"))
}
RECIPES: dict[str, Supervised] = {
    **{f"deit-{name}": replace(DEIT, architecture=architecture) for name, architecture in MODELS.items()},
    **{f"deit-{name}-hard": replace(HARD, architecture=architecture) for name, architecture in MODELS.items()},
    **{f"deit-{name}-soft": replace(SOFT, architecture=architecture) for name, architecture in MODELS.items()},
    # The command in the code's README_deit.md: 30 epochs at a constant learning rate, batch 512. The paper reports 25.
    # The code (main.py) keeps a head whose shape fits, resamples positions by PyTorch's bicubic interpolation, and did
    # not drop blocks: "keep in eval mode for deit finetuning".
    "deit-b16-384": replace(
        DEIT,
        architecture=Architecture("B/16"),
        weights="runs/deit-b16/model.keras",
        keep_head=True,
        resample="bicubic",
        data=replace(DATA, image_size=384, batch_size=512),
        optimizer=replace(
            OPTIMIZER, learning_rate=5e-6, decay="constant", warmup_steps=5 * IMAGES // 512, weight_decay=1e-8
        ),
        total_epochs=30,
    ),
}
