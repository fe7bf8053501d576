"""Results of other projects, computed by their own code: files in tests/data/ for optimizers, data and metrics.

Command: python tools/training_goldens.py SUBJECT [FOLDER]
--help lists the packages of a subject. FOLDER is a clone of facebookresearch/deit, for three_augment, or of
google-research/big_vision, for training_batches.
"""

import argparse
import io
import sys
from pathlib import Path

import numpy as np

sys.path.insert(0, str(Path(__file__).parents[1] / "tests"))

from goldens import DATA

RATES = (0.1, 0.05, 0.02, 0.02, 0.01)
DECAY, CLIPNORM, EPSILON = 0.2, 1.5, 1e-8


def optimizers():
    """Five steps of timm's Lamb and optax's Lion on a kernel with weight decay and a bias without."""
    random = np.random.default_rng(0)
    start = {"kernel": random.standard_normal((3, 4)), "bias": random.standard_normal(4)}
    gradients = [{name: random.standard_normal(array.shape) for name, array in start.items()} for _ in RATES]
    gradients[1]["kernel"][0] = 0
    arrays = {f"start_{name}": array for name, array in start.items()}
    arrays |= {f"gradient_{name}": np.stack([step[name] for step in gradients]) for name in start}
    for name, function in (("lamb", _lamb), ("lion", _lion)):
        arrays |= {f"{name}_{key}": np.asarray(value) for key, value in function(start, gradients).items()}
    settings = {"rates": RATES, "decay": DECAY, "clipnorm": CLIPNORM, "epsilon": EPSILON}
    np.savez(DATA / "optimizer_steps.npz", **arrays, **settings)


def _lamb(start, gradients):
    import torch
    from timm.optim import Lamb

    weights = {name: torch.nn.Parameter(torch.from_numpy(array.copy())) for name, array in start.items()}
    groups = [
        {"params": [weights["kernel"]], "weight_decay": DECAY},
        {"params": [weights["bias"]], "weight_decay": 0.0},
    ]
    optimizer = Lamb(groups, betas=(0.9, 0.999), eps=EPSILON, max_grad_norm=CLIPNORM)
    for rate, step in zip(RATES, gradients):
        for name, weight in weights.items():
            weight.grad = torch.from_numpy(step[name].copy())
        for group in optimizer.param_groups:
            group["lr"] = rate
        optimizer.step()
    return {name: weight.detach().numpy() for name, weight in weights.items()}


def _lion(start, gradients):
    import jax
    import optax

    jax.config.update("jax_enable_x64", True)
    mask = {"kernel": True, "bias": False}
    rates = list(RATES)
    step_of = [optax.lion(rate, b1=0.9, b2=0.99, weight_decay=DECAY, mask=mask) for rate in rates]
    clip = optax.clip_by_global_norm(CLIPNORM)
    weights, state = start, step_of[0].init(start)
    for optimizer, step in zip(step_of, gradients):
        clipped, _ = clip.update(step, clip.init(start))
        updates, state = optimizer.update(clipped, state, weights)
        weights = optax.apply_updates(weights, updates)
    return weights


def three_augment(folder):
    """Each part of 3-Augment on a photograph, and its simple random crop, by DeiT's code and torchvision."""
    sys.path.insert(0, folder)
    import timm.data.transforms as transforms

    transforms._pil_interp = transforms.str_to_pil_interp  # its name when DeiT was written
    import augment
    import torchvision.transforms.functional as functional
    from PIL import Image

    golden = np.load(DATA / "augment.npz")
    image = Image.open(io.BytesIO(golden["image_224_png"].tobytes()))
    results = {
        "grayscale": augment.gray_scale(p=1.0)(image),
        "solarization": augment.Solarization(p=1.0)(image),
    }
    for radius in (0.1, 0.7, 1.2, 1.6, 2.0):
        results[f"blur_{radius}"] = augment.GaussianBlur(p=1.0, radius_min=radius, radius_max=radius)(image)
    for name in ("brightness", "contrast", "saturation"):
        for factor in (0.7, 0.93, 1.3):
            results[f"{name}_{factor}"] = getattr(functional, f"adjust_{name}")(image, factor)
    jittered = functional.adjust_brightness(functional.adjust_contrast(results["blur_1.2"], 1.3), 0.7)
    results["blur_1.2_contrast_1.3_brightness_0.7_saturation_1.3"] = functional.adjust_saturation(jittered, 1.3)
    arrays = {name: np.asarray(result)[::4, ::4] for name, result in results.items()}
    arrays |= _simple_crops(augment, image.crop((0, 0, 150, 100)))
    np.savez_compressed(DATA / "three_augment.npz", **arrays)


def _simple_crops(augment, image):
    """The image before the random crop of 48 pixels, with its margin: DeiT's transform with all else fixed."""
    from argparse import Namespace

    pipeline = augment.new_data_aug_generator(Namespace(input_size=48, src=True, color_jitter=0.0)).transforms
    resize, crop = pipeline[:2]
    import torchvision.transforms.functional as functional

    padded = functional.pad(resize(image), crop.padding, crop.fill, crop.padding_mode)
    return {"simple_input": np.asarray(image), "simple_padded": np.asarray(padded)}


def training_batches(folder):
    """Batches of crops and flips of a JPEG file with their own draws: big_vision's, and torchvision's as MAE has it."""
    sys.path.insert(0, folder)
    import tensorflow as tf
    import torch
    from big_vision.pp import ops_image
    from PIL import Image
    from torchvision import transforms

    photo = Image.open(io.BytesIO(np.load(DATA / "augment.npz")["photo_png"].tobytes()))
    file = io.BytesIO()
    photo.resize((240, 180), Image.Resampling.BICUBIC).save(file, "JPEG", quality=90)
    arrays = {"jpeg": np.frombuffer(file.getvalue(), "uint8")}
    decoded = Image.fromarray(tf.io.decode_jpeg(file.getvalue()).numpy())

    tf.random.set_seed(0)
    draw, boxes = tf.image.sample_distorted_bounding_box, []

    def recorded(*arguments, **options):
        begin, size, box = draw(*arguments, **options)
        boxes.append([*begin.numpy()[:2], *size.numpy()[:2]])
        return begin, size, box

    tf.image.sample_distorted_bounding_box = recorded
    crop, flip = ops_image.get_decode_jpeg_and_inception_crop(48), ops_image.get_random_flip_lr()
    images = [flip(crop({"image": file.getvalue()}))["image"].numpy() for _ in range(8)]
    arrays |= {"big_vision_boxes": np.array(boxes), "big_vision_images": np.stack(images)}

    torch.manual_seed(0)
    cropped = transforms.RandomResizedCrop(48, scale=(0.2, 1.0), interpolation=transforms.InterpolationMode.BICUBIC)
    draw, boxes = cropped.get_params, []
    cropped.get_params = lambda *arguments: boxes.append(draw(*arguments)) or boxes[-1]
    pipeline = transforms.Compose([cropped, transforms.RandomHorizontalFlip()])
    images = [np.asarray(pipeline(decoded)) for _ in range(8)]
    arrays |= {"torchvision_boxes": np.array(boxes), "torchvision_images": np.stack(images)}
    np.savez_compressed(DATA / "training_batches.npz", **arrays)


def average_precision():
    """scikit-learn's average precision of five classes; the sixth has no image. "scores" have many equal ones."""
    from sklearn.metrics import average_precision_score

    random = np.random.default_rng(0)
    labels = random.random((80, 6)) < [0.5, 0.2, 0.05, 0.9, 0.3, 0]
    arrays = {"labels": labels, "scores": np.round(random.normal(0, 2, (80, 6)) + labels, 1).astype("float32")}
    arrays["fine"] = (random.normal(0, 2, (80, 6)) + labels).astype("float32")
    for scores, prefix in (("scores", ""), ("fine", "fine_")):
        found = [average_precision_score(labels[:, i], arrays[scores][:, i]) for i in range(5)]
        mean = average_precision_score(labels[:, :5], arrays[scores][:, :5], average="macro")
        arrays |= {f"{prefix}precisions": np.array(found), f"{prefix}mean": np.array(mean)}
    np.savez(DATA / "average_precision.npz", **arrays)


def hub_dataset():
    """Two datasets in the layout of the Hugging Face Hub: one label per image, and several."""
    from datasets import ClassLabel, Dataset, Features, Image, Sequence, Value
    from PIL import Image as Pillow

    def write(file, features, **columns):
        path = DATA / "hub_dataset" / file
        path.parent.mkdir(parents=True, exist_ok=True)
        Dataset.from_dict(columns, features=features).to_parquet(str(path), batch_size=2)

    def images(first, last):
        return [Pillow.fromarray(np.full((6, 7, 3), 10 * i, "uint8")) for i in range(first, last)]

    classes = ClassLabel(names=["cat", "dog", "sky"])
    one = Features({"image": Image(), "label": classes, "id": Value("int64")})
    for file, first, last in (("train-00000-of-00002", 0, 4), ("train-00001-of-00002", 4, 7)):
        labels = [i % 3 for i in range(first, last)]
        write(f"one/data/{file}.parquet", one, image=images(first, last), label=labels, id=list(range(first, last)))
    write("one/data/test-00000-of-00001.parquet", one, image=images(20, 22), label=[2, 1], id=[0, 1])
    several = Features({"img": Image(), "labels": Sequence(classes)})
    write("several/train/0000.parquet", several, img=images(0, 3), labels=[[], [0, 2], [1]])


# What writes the files of a subject, and the packages that it requires.
SUBJECTS = {
    "optimizers": (optimizers, "torch timm optax"),
    "three_augment": (three_augment, "torch torchvision timm pillow"),
    "average_precision": (average_precision, "scikit-learn"),
    "training_batches": (training_batches, "tensorflow torch torchvision einops pillow"),
    "hub_dataset": (hub_dataset, "datasets pillow"),
}
CLONES = "three_augment", "training_batches"


def main():
    packages = "\n".join(f"    {name}: pip install {requires}" for name, (_, requires) in SUBJECTS.items())
    parser = argparse.ArgumentParser(
        description=f"{__doc__}\n{packages}", formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("subject", choices=SUBJECTS)
    parser.add_argument("folder", nargs="?", help="a clone, for " + " and ".join(CLONES))
    arguments = parser.parse_args()
    write, requires = SUBJECTS[arguments.subject]
    if (arguments.folder is not None) != (arguments.subject in CLONES):
        parser.error(f"Expected a folder for {' and '.join(CLONES)}, else none. Received: {arguments.folder}")
    try:
        write(*[arguments.folder] * (arguments.folder is not None))
    except ImportError as error:
        parser.error(f"{error}. {arguments.subject} requires: pip install {requires}")


if __name__ == "__main__":
    main()
