"""Examples of each command, at the end of its help page."""

EXAMPLES = {
    "classify": (
        "keras-vit classify cat.jpg photos/",
        "keras-vit classify cat.jpg --model model.tflite --json > found.json",
        "keras-vit classify photos/ --model runs/photos --attention evidence",
    ),
    "describe": ("keras-vit describe hf:google/vit-base-patch16-224", "keras-vit describe model.tflite --json"),
    "inspect": ("keras-vit inspect runs/photos --images photos --output attention.html",),
    "finetune": ("keras-vit finetune photos", "keras-vit finetune photos --class-weight balanced --output runs/second"),
    "train": (
        "keras-vit train                                    # lists the recipes",
        "keras-vit train cifar10-10ep --help mixup          # the options that have this word",
        "keras-vit train cifar10-10ep --run.folder runs/c10 --data.augment.mixup-alpha 0.2",
    ),
    "sweep": (
        "keras-vit sweep cifar10-10ep --help",
        "keras-vit sweep cifar10-10ep --learning-rates 1e-3 3e-3 --recipe.run.folder runs/c10-sweep",
    ),
    "prepare": ("keras-vit prepare photos --output gs://bucket/photos --against cifar10@test",),
    "preflight": (
        "keras-vit preflight --list",
        "keras-vit preflight imagenet1k-b16 --topology v5e:2x4 --run.remat block --data.batch-size 1024",
    ),
    "preflight --npu": ("keras-vit preflight model-int8.tflite --npu SM8750 --simulate photos",),
    "evaluate": (
        "keras-vit evaluate runs/photos --dataset folder:photos --per-class",
        "keras-vit evaluate model.tflite --dataset folder:photos --reference runs/photos",
        "keras-vit evaluate runs/c10 --dataset cifar10 --image-size 48 --json > accuracy.json",
    ),
    "report": ("keras-vit report runs/photos/predictions.csv --compare runs/photos-2/predictions.csv",),
    "probe": ("keras-vit probe hf:facebook/dinov2-base --dataset folder:photos --image-size 112",),
    "few-shot": ("keras-vit few-shot vit/imagenet21k/ViT-B_16 --dataset cifar100 --shots 1 5 10",),
    "vtab": ("keras-vit vtab vit/imagenet21k/ViT-B_16 --tasks pets dtd",),
    "export": (
        "keras-vit export runs/photos --output exported",
        "keras-vit export runs/c10 --dataset cifar10 --formats float16 int8 web saved-model --output exported",
    ),
    "convert": (
        "keras-vit convert B_16.npz --output vit/model.safetensors",
        "keras-vit convert hf:google/vit-base-patch16-224 --output vit-384.keras --image-size 384",
    ),
    "benchmark": ("keras-vit benchmark exported/*.tflite --num-threads 4",),
    "doctor": ("keras-vit doctor",),
    "demo": ("keras-vit demo --output runs/demo",),
}
