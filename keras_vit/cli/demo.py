"""`keras-vit demo`: the whole job in small, from unlabelled pictures to checked TFLite files and a report."""

import json
import time
from dataclasses import asdict, dataclass, replace
from pathlib import Path

from keras_vit.cli.fresh_folder import MARK, check_replaceable, fresh_folder

STARTS = {"scratch": "from scratch", "pretrained": "pre-trained"}


@dataclass(frozen=True)
class Demo:
    """Pre-train, fine-tune, export, check and report, on scikit-learn's digits: a few minutes on a laptop.

    A small ViT learns from unlabelled pictures with masked patches and is fine-tuned at a higher resolution with 10
    labels a class and with all of them; the same from scratch for comparison. The best is exported and checked.

    Args:
        output: Folder for report.html, model.keras, saved_model/, the .tflite files and metrics.json. Replaced at the
            end if a former run made it.
        seed: Of everything that is random.
        fast: A smoke run of a few updates; its accuracies mean nothing.
    """

    output: Path = Path("runs/demo")
    seed: int = 0
    fast: bool = False

    def run(self):
        """Does the job; prints where the report is."""
        start = time.perf_counter()
        check_replaceable(self.output)
        from keras_vit.cli.report import write_report

        with fresh_folder(self.output) as folder:
            results = run_demo(folder, self.seed, self.fast)
            metrics = results["metrics"]
            metrics["seconds"] = round(time.perf_counter() - start, 1)
            write_report(folder / "report.html", results)
            (folder / MARK).write_text(json.dumps(metrics, indent=2) + "\n")
        print(f"\nFinished in {metrics['seconds']:.0f} s. Open {(self.output / 'report.html').absolute()}")


def run_demo(folder: Path, seed: int, fast: bool) -> dict:
    """Trains, exports and checks; returns everything that the report shows."""
    import numpy as np

    from keras_vit.export import check_parity, write_saved_model, write_tflite
    from keras_vit.recipes.configs import digits
    from keras_vit.recipes.data import class_names, evaluation_batches, open_dataset
    from keras_vit.recipes.fit import build_vit, evaluate, finetune, pretrain

    pretraining, finetuning = digits.MASKED_PATCH, digits.FINE_TUNE
    if fast:
        pretraining = replace(pretraining, total_steps=20, optimizer=replace(pretraining.optimizer, warmup_steps=2))
        finetuning = replace(finetuning, total_steps=20, optimizer=replace(finetuning.optimizer, warmup_steps=2))
    pretraining = replace(pretraining, run=replace(pretraining.run, seed=seed))
    finetuning = replace(finetuning, run=replace(finetuning.run, seed=seed))

    _say("Masked-patch pre-training on unlabelled pictures")
    masked_model, history = pretrain(pretraining)
    histories = {"pretraining": history}
    models, accuracy = {}, {}
    scratch = build_vit(pretraining.architecture, finetuning.data, finetuning.run)
    for labels in (digits.FEW_LABELS, None):
        for start, vit in (("scratch", scratch), ("pretrained", masked_model.vit)):
            name = f"{start}_{labels or 'all'}"
            _say(f"Fine-tuning with {labels or 'all'} labels a class, {STARTS[start]}")
            recipe = replace(finetuning, data=replace(finetuning.data, labels_per_class=labels))
            models[name], histories[name] = finetune(recipe, vit)
            accuracy[name] = evaluate(models[name], recipe.data, recipe.data.test_split)
            print(f"Test accuracy: {accuracy[name]:.1%}")

    _say("Export")
    model, data = models["pretrained_all"], finetuning.data
    builder = open_dataset(data)
    test = list(
        evaluation_batches(data, builder, data.test_split).unbatch().filter(lambda *x: x[2] > 0).as_numpy_iterator()
    )
    images, labels = np.stack([x[0] for x in test]), np.array([x[1] for x in test])
    train = evaluation_batches(data, builder, data.train_split).unbatch().take(200)
    files = {"Keras": folder / "model.keras", "SavedModel": folder / "saved_model"}
    # A copy that was never compiled: without the optimizer, `import keras_vit` is all that loading it takes.
    model.resized(model.image_size).save(files["Keras"])
    write_saved_model(model, files["SavedModel"])
    calibration = np.stack([image for image, _, _ in train.as_numpy_iterator()])
    written = write_tflite(model, folder, calibration=calibration)
    files |= {f"TFLite {name}": file for name, file in written.items()}
    _say("Check of the exported models on the test pictures")
    parity = check_parity(model, files, images, labels)
    metrics = {
        "seed": seed,
        "fast": fast,
        "test_accuracy": accuracy,
        "exports": [asdict(row) for row in parity],
        "parameters": model.count_params(),
        "test_images": len(labels),
    }
    return {
        "metrics": metrics,
        "model": model,
        "masked_model": masked_model,
        "recipes": {"pretraining": pretraining, "finetuning": finetuning},
        "histories": histories,
        "images": images,
        "labels": labels,
        "class_names": class_names(builder),
    }


def _say(what: str):
    print(f"\n== {what}")
