"""The demo's recipes with several seeds: accuracy by number of labels, and accuracy after export.

Command: python benchmarks/digits.py --seeds 0 1 2
Finished seeds are not repeated; results are stored in runs/digits/.
"""

import json
import tempfile
from dataclasses import asdict, dataclass, replace
from pathlib import Path

import keras
import numpy as np
import tensorflow as tf
import tyro

from keras_vit.export import check_parity, write_tflite
from keras_vit.recipes.configs.digits import FINE_TUNE, MASKED_PATCH
from keras_vit.recipes.data import evaluation_arrays, open_dataset
from keras_vit.recipes.fit import evaluate, pretrain, train
from keras_vit.recipes.training.model import build_model


@dataclass
class Digits:
    seeds: tuple[int, ...] = (0, 1, 2)
    output: Path = Path("runs/digits")


def run_seed(seed: int) -> dict:
    keras.utils.set_random_seed(seed)
    pretraining = replace(MASKED_PATCH, run=replace(MASKED_PATCH.run, seed=seed))
    finetuning = replace(FINE_TUNE, run=replace(FINE_TUNE.run, seed=seed))
    starts = {
        "scratch": build_model(pretraining.architecture, finetuning.data, finetuning.run),
        "pre-trained": pretrain(pretraining)[0].vit,
    }
    top1 = {}
    for labels in (10, 100, None):
        recipe = replace(finetuning, data=replace(finetuning.data, labels_per_class=labels))
        for start, vit in starts.items():
            model, _ = train(recipe, vit)
            metrics = evaluate(model, recipe.data, recipe.data.test_split)
            top1[f"{labels or 'all'} labels, {start}"] = metrics["top1"]
    with tempfile.TemporaryDirectory() as folder:
        data = finetuning.data
        files = write_tflite(model, folder)
        images, labels = evaluation_arrays(data, open_dataset(data), data.test_split)
        parity = check_parity(model, files, pixels(images), labels)
    return {"top1": top1, "parity": [asdict(row) for row in parity]}


def pixels(images):
    return (images + 1) * 127.5


def main(options: Digits):
    tf.config.threading.set_intra_op_parallelism_threads(1)  # as the demo does
    options.output.mkdir(parents=True, exist_ok=True)
    results = []
    for seed in options.seeds:
        file = options.output / f"{seed}.json"
        if not file.exists():
            file.write_text(json.dumps(run_seed(seed), indent=2))
        results.append(json.loads(file.read_text()))
    print(
        f"\nTop-1 test accuracy in percent, mean and standard deviation over seeds {options.seeds}\n\n| | |\n|---|---|"
    )
    for name in results[0]["top1"]:
        values = 100 * np.array([result["top1"][name] for result in results])
        print(f"| {name} | {values.mean():.2f} ± {values.std(ddof=min(1, len(values) - 1)):.2f} |")
    print("\n| TFLite | accuracy drop, percentage points | agreement, % |\n|---|---|---|")
    for i, row in enumerate(results[0]["parity"]):
        rows = [result["parity"][i] for result in results]
        drop = 100 * np.mean([row["accuracy_drop"] for row in rows])
        print(f"| {row['name']} | {drop:+.2f} | {100 * np.mean([r['agreement'] for r in rows]):.2f} |")


if __name__ == "__main__":
    main(tyro.cli(Digits))
