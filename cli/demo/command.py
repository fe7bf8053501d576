"""`keras-vit demo`: the whole job in small, from unlabeled images to checked TFLite files and a report."""

import json
import time
from dataclasses import asdict, dataclass, replace
from pathlib import Path

from keras_vit.atomic_write import check_replaceable, new_folder

REPORT = "report.html"
CALIBRATION_IMAGES = 200
STARTS = {"scratch": "from scratch", "pretrained": "pre-trained"}


@dataclass(frozen=True)
class Demo:
    """Pre-train, fine-tune, export, check and report, on scikit-learn's digits: a few minutes on a laptop.

    A small ViT learns from unlabeled images with masked patches and is fine-tuned at a higher resolution with 10
    labels a class and with all of them; the same from scratch for comparison. The best is exported and checked.

    Args:
        output: Folder for report.html, model.keras, model_card.md, saved_model/, the .tflite files and metrics.json.
            Replaced at the end if it holds a former report.html.
        seed: Of everything that is random.
        fast: A smoke run of a few updates of a shallow model; its accuracies mean nothing.
    """

    output: Path = Path("runs/demo")
    seed: int = 0
    fast: bool = False

    def run(self):
        """Does the job; prints where the report is."""
        start = time.perf_counter()
        check_replaceable(self.output, REPORT)
        import tensorflow as tf

        from keras_vit_cli.demo.report import write_report

        # One thread an operation: tensors this small lose more to waiting for each other than they gain.
        tf.config.threading.set_intra_op_parallelism_threads(1)
        with new_folder(self.output, REPORT) as folder:
            results = run_demo(folder, self.seed, self.fast)
            metrics = results["metrics"]
            metrics["seconds"] = round(time.perf_counter() - start, 1)
            write_report(folder / REPORT, results)
            (folder / "model_card.md").write_text(_card(results))
            (folder / "metrics.json").write_text(json.dumps(metrics, indent=2) + "\n")
        print(f"\nFinished in {metrics['seconds']:.0f} s. Open {(self.output / REPORT).absolute()}")


def run_demo(folder: Path, seed: int, fast: bool) -> dict:
    """Trains, exports and checks; returns everything that the report shows."""
    from keras_vit.recipes.configs import digits
    from keras_vit.recipes.data import class_names, evaluation_arrays, open_dataset

    pretraining, finetuning = (_seeded(recipe, seed, fast) for recipe in (digits.MASKED_PATCH, digits.FINE_TUNE))
    if fast:  # most of a short run's time goes into building graphs, block by block
        pretraining = replace(pretraining, architecture=replace(pretraining.architecture, depth=1))
    trained = _train(pretraining, finetuning, digits.FEW_LABELS)
    data, model = finetuning.data, trained["model"]
    builder = open_dataset(data)
    images, labels = evaluation_arrays(data, builder, data.test_split)
    calibration = evaluation_arrays(data, builder, data.train_split)[0][:CALIBRATION_IMAGES]
    names = class_names(builder)
    parity = _export(folder, model, _pixels(calibration), _pixels(images), labels, names)
    metrics = {
        "seed": seed,
        "fast": fast,
        "test_top1": trained.pop("accuracy"),
        "exports": [asdict(row) for row in parity],
        "parameters": model.count_params(),
        "test_images": len(labels),
    }
    recipes = {"pretraining": pretraining, "finetuning": finetuning}
    images = {"images": images, "labels": labels, "class_names": names}
    return {"metrics": metrics, "recipes": recipes, **trained, **images}


def _seeded(recipe, seed, fast):
    run = replace(recipe.run, seed=seed)
    if not fast:
        return replace(recipe, run=run)
    # One step an execution: a loop around the step pays only when there are many.
    run = replace(run, steps_per_execution=1)
    return replace(recipe, total_steps=20, run=run, optimizer=replace(recipe.optimizer, warmup_steps=2))


def _train(pretraining, finetuning, few_labels) -> dict:
    """Pre-trains once and fine-tunes four times; the model is the pre-trained one that saw all labels."""
    from keras_vit.recipes.fit import evaluate, pretrain, train
    from keras_vit.recipes.training.model import build_model

    _say("Masked-patch pre-training on unlabeled images")
    masked_model, history = pretrain(pretraining)
    scratch = build_model(pretraining.architecture, finetuning.data, finetuning.run)
    histories, accuracy = {"pretraining": history}, {}
    for labels in (few_labels, None):
        for start, vit in (("scratch", scratch), ("pretrained", masked_model.vit)):
            name = f"{start}_{labels or 'all'}"
            _say(f"Fine-tuning with {labels or 'all'} labels a class, {STARTS[start]}")
            recipe = replace(finetuning, data=replace(finetuning.data, labels_per_class=labels))
            model, histories[name] = train(recipe, vit)
            accuracy[name] = evaluate(model, recipe.data, recipe.data.test_split)["top1"]
            print(f"Test accuracy: {accuracy[name]:.1%}")
    return {"model": model, "masked_model": masked_model, "histories": histories, "accuracy": accuracy}


def _card(results):
    from keras_vit.recipes.run_recipe import run_card

    origin = "Pre-trained here by predicting corrupted patches of the same images, then fine-tuned."
    accuracy = results["metrics"]["test_top1"]["pretrained_all"]
    return run_card(results["model"], results["recipes"]["finetuning"], {"top1": accuracy}, origin)


def _pixels(images):
    return (images + 1) * 127.5


def _export(folder, model, calibration, pixels, labels, names):
    """Writes every kind of file and compares each with the model."""
    from keras_vit.export import check_parity, write_saved_model, write_tflite

    _say("Export")
    files = {"Keras": folder / "model.keras", "SavedModel": folder / "saved_model"}
    # A copy that was never compiled: without the optimizer, `import keras_vit` is all that loading it takes.
    model.resized(model.image_size).save(files["Keras"])
    write_saved_model(model, files["SavedModel"], labels=names)
    formats = ("float32", "float16", "dynamic-int8", "mixed-int8", "int8")
    written = write_tflite(model, folder, formats, calibration, labels=names)
    _say("Check of the exported models on the test images")
    return check_parity(model, files | {f"TFLite {name}": file for name, file in written.items()}, pixels, labels)


def _say(what: str):
    print(f"\n== {what}")
