"""ViT-S/16 on ImageNet with RandAugment and mixup: "Better plain ViT baselines for ImageNet-1k" (arXiv 2205.01580).

Command:   keras-vit train plain-s16-90 --run.folder gs://my-bucket/runs/s16
Hardware:  TPU v3-8.
Hours:     6.5 for 90 epochs (the paper); computed from that, 11 for 150 and 22 for 300.
Accuracy:  76.5, 78.5, 80.0 for 90, 150, 300 epochs (the paper). Not yet measured here.
"""

from dataclasses import replace

from keras_vit.recipes.configs.imagenet import IMAGENET, RUN
from keras_vit.recipes.recipe import Architecture, Augment, Optimizer, Supervised

# big_vision's weight decay of 1e-4 is not multiplied by the learning rate of 1e-3: 0.1 here, see docs/recipes.md. Its
# shuffle buffer holds 27 GB of encoded images. Its first moment is in bfloat16, ours in float32.
PLAIN_S16 = Supervised(
    architecture=Architecture("S/16", pooling="gap", representation_size=384, position_embedding="sincos_2d"),
    data=replace(
        IMAGENET,
        batch_size=1024,
        augment=Augment(randaugment_layers=2, randaugment_magnitude=10, mixup_alpha=0.2),
        shuffle_images=250_000,
    ),
    optimizer=Optimizer(
        name="adamw", learning_rate=1e-3, decay="cosine", warmup_steps=10_000, weight_decay=0.1, global_clipnorm=1.0
    ),
    run=RUN,
    loss="softmax",
    total_steps=None,
)
RECIPES = {f"plain-s16-{epochs}": replace(PLAIN_S16, total_epochs=epochs) for epochs in (90, 150, 300)}
