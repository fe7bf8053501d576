"""`keras-vit demo`: pre-training, fine-tuning, export and parity check on a small dataset, with a report."""

import json
import multiprocessing
import os
import time
from collections.abc import Iterator
from concurrent.futures import Executor, ProcessPoolExecutor
from contextlib import contextmanager
from dataclasses import asdict, dataclass, replace
from pathlib import Path

from keras_vit_cli.output_folder import check_replaceable, new_folder
from keras_vit_cli.process import without_native_logs
from keras_vit_cli.words import Output

REPORT = "report.html"
NUM_CALIBRATION_IMAGES = 200


@dataclass(frozen=True)
class Demo:
    """Pre-train, fine-tune, export and check a small model in minutes.

    --output is a folder for report.html, model.keras, model_card.md, saved_model/, .tflite files and metrics.json. A
    folder with the report.html of a previous run is replaced. The images are scikit-learn's digits. The model is
    pre-trained on unlabeled images by masked-patch prediction, then fine-tuned at a higher resolution with 10 labels
    per class and with all labels; also from scratch, for comparison. The model pre-trained and fine-tuned with all
    labels is exported. Then the trained classifier inside the package names what is on photographs.

    Args:
        seed: Random seed.
        fast: Smoke test: a few steps of a shallow model, with meaningless accuracies.
    """

    output: Output = Path("runs/demo")
    seed: int = 0
    fast: bool = False

    def run(self):
        """Runs the demo and prints the path of the report."""
        start = time.perf_counter()
        check_replaceable(self.output, REPORT)
        from keras_vit_cli.commands.demo.report import write_report

        _compute_in_one_thread()
        with new_folder(self.output, REPORT) as folder:
            results = run_demo(folder, self.seed, self.fast)
            metrics = results["metrics"]
            metrics["seconds"] = round(time.perf_counter() - start, 1)
            write_report(folder / REPORT, results)
            (folder / "model_card.md").write_text(_card(results))
            (folder / "metrics.json").write_text(json.dumps(metrics, indent=2) + "\n")
        print(f"\nFinished in {metrics['seconds']:.0f} s. Open {(self.output / REPORT).absolute()}")


def run_demo(folder: Path, seed: int, fast: bool) -> dict:
    """Trains, exports and checks; returns the contents of the report."""
    from keras_vit.recipes.configs import digits
    from keras_vit.recipes.data import evaluation_arrays, open_dataset
    from keras_vit_cli.commands.demo.report import classify_photographs

    _print_stage("The classifier of the package on photographs")
    photographs = classify_photographs()
    pretraining, finetuning = (_configure(recipe, seed, fast) for recipe in (digits.MASKED_PATCH, digits.FINE_TUNE))
    data = finetuning.data
    dataset = open_dataset(data)  # before two processes would write it
    with _second_process() as second:
        trained = _train(pretraining, finetuning, digits.FEW_LABELS, second)
    model, names = trained["model"], dataset.class_names
    images, labels = evaluation_arrays(data, dataset, data.test_split)
    calibration = evaluation_arrays(data, dataset, data.train_split)[0][:NUM_CALIBRATION_IMAGES]
    parity = _export(folder, model, _pixels(calibration), _pixels(images), labels, names)
    metrics = {
        "seed": seed,
        "fast": fast,
        "test_top1": trained.pop("test_top1"),
        "exports": [asdict(row) for row in parity],
        "num_parameters": model.count_params(),
        "num_test_images": len(labels),
    }
    recipes = {"pretraining": pretraining, "finetuning": finetuning}
    return {"metrics": metrics, "recipes": recipes, "photographs": photographs, **trained}


def _compute_in_one_thread():
    """Tensors this small lose more to synchronization than they gain from several threads."""
    import tensorflow as tf

    tf.config.threading.set_intra_op_parallelism_threads(1)


@contextmanager
def _second_process() -> Iterator[Executor]:
    """Runs functions in a process beside this one, without their output. Ends it at once after an error or Ctrl-C."""
    context = multiprocessing.get_context("spawn")
    with ProcessPoolExecutor(1, context, _start_second_process) as pool:
        try:
            yield pool
        except BaseException:
            for process in multiprocessing.active_children():
                process.terminate()
            raise


def _start_second_process():
    quiet = os.open(os.devnull, os.O_WRONLY)
    os.dup2(quiet, 1)
    os.dup2(quiet, 2)
    _compute_in_one_thread()


def _configure(recipe, seed, fast):
    run = replace(recipe.run, seed=seed)
    if not fast:
        return replace(recipe, run=run)
    # A loop of several steps takes longer to build than it saves in a short run.
    run = replace(run, steps_per_execution=1)
    data = replace(recipe.data, validation_split="validation[:50]", test_split="test[:100]")
    architecture = replace(recipe.architecture, depth=1)  # building graphs dominates the time of a short run
    optimizer = replace(recipe.optimizer, warmup_steps=1)
    return replace(recipe, data=data, total_steps=3, run=run, optimizer=optimizer, architecture=architecture)


def _train(pretraining, finetuning, few_labels, second) -> dict:
    """Pre-trains once and fine-tunes four times; "model" is the pre-trained one fine-tuned with all labels.

    What needs no result of this process runs in the `second` one meanwhile.
    """
    from keras_vit.recipes.fit import pretrain

    few = replace(finetuning, data=replace(finetuning.data, labels_per_class=few_labels))
    recipes = {str(few_labels): few, "all": finetuning}
    tests = {f"scratch_{name}": second.submit(_fine_tune, recipe) for name, recipe in recipes.items()}
    _print_stage("Masked-patch pre-training on unlabeled images; meanwhile, fine-tuning from scratch")
    masked_model, history = pretrain(pretraining)
    tests[f"pretrained_{few_labels}"] = second.submit(_fine_tune, few, masked_model.vit)
    _print_stage(f"Fine-tuning of the pre-trained model with all labels; meanwhile, with {few_labels} per class")
    model, *results = _fine_tune(finetuning, masked_model.vit)
    results = {name: test.result()[1:] for name, test in tests.items()} | {"pretrained_all": results}
    print("\nTest accuracy")
    for name, (_, top1) in results.items():
        print(f"{name.replace('_', ', '):20}{top1:.1%}")
    histories = {"pretraining": history, **{name: history for name, (history, _) in results.items()}}
    test_top1 = {name: top1 for name, (_, top1) in results.items()}
    return {"model": model, "masked_model": masked_model, "histories": histories, "test_top1": test_top1}


def _fine_tune(recipe, start=None):
    """The model, the history of `fit` and the test accuracy of a fine-tuning; of a new model without `start`."""
    from keras_vit.recipes.fit import evaluate, train

    model, history = train(recipe, start)
    return model, history, evaluate(model, recipe.data, recipe.data.test_split)["top1"]


def _card(results) -> str:
    from keras_vit.recipes.run_recipe import run_card

    origin = "Pre-trained here by predicting corrupted patches of the same images, then fine-tuned."
    top1 = results["metrics"]["test_top1"]["pretrained_all"]
    return run_card(results["model"], results["recipes"]["finetuning"], {"top1": top1}, origin)


def _pixels(images):
    return (images + 1) * 127.5


@without_native_logs()
def _export(folder, model, calibration, pixels, labels, names):
    """Exports to all formats and compares each with the Keras model."""
    from keras_vit.export import check_parity, write_saved_model, write_tflite

    _print_stage("Export")
    files = {"Keras": folder / "model.keras", "SavedModel": folder / "saved_model"}
    # A copy that was never compiled: without an optimizer, `import keras_vit` is enough to load the file.
    model.resized(model.image_size, name=model.name).save(files["Keras"])
    write_saved_model(model, files["SavedModel"], class_names=names)
    formats = ("float32", "float16", "dynamic-int8", "mixed-int8", "int8")
    written = write_tflite(model, folder, formats, calibration, class_names=names)
    _print_stage("Parity check on the test images")
    return check_parity(model, files | {f"TFLite {name}": file for name, file in written.items()}, pixels, labels)


def _print_stage(text: str):
    print(f"\n== {text}")
