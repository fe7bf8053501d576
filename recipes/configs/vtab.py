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

from keras_vit.recipes.data.vtab import TASKS, Task
from keras_vit.recipes.recipe import Architecture, Data, Optimizer, Run, Supervised


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
# Fields of `keras_vit.recipes.learning_rate_sweep.Sweep` by recipe: the 800 and 200 images of the protocol.
SWEEPS = {
    f"vtab-{name}": {"tuning_split": task.train800, "held_out_split": task.val200} for name, task in TASKS.items()
}
