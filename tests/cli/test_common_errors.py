"""Whole messages of the errors that most users meet, one command each; the other mistakes: test_mistakes.py."""

import re
import sys

import pytest

ERRORS = """
train cifar10-scrach
No recipe 'cifar10-scrach'. Did you mean one of: cifar10-scratch, cifar10-mae, cifar10, cifar10-masked-patch,
cifar10-10ep? keras-vit train lists all recipes; a recipe file ends in .json.

train finetune-pets --optimizer.lr 0.1
There is no option --optimizer.lr. Use --optimizer.learning-rate X

train --total-steps 3 cifar10
The name of a recipe, or the folder of a run, precedes all options: keras-vit train cifar10 --total-steps 3
keras-vit train lists the recipes.

train cifar10-10ep --run.folder old
The folder old already contains a run. Received: --run.folder old. Use --run.resume or --run.folder old-2.

train cifar10-finetune
runs/cifar10-masked-patch/model.keras does not exist: train it with `keras-vit train cifar10-masked-patch`, or choose
another file or name of weights.

train jft-b16
This recipe requires your own dataset and its splits: there is no public one. `keras-vit prepare` writes TFRecords.
Received: --data.dataset tfrecord:gs://your-bucket/jft. Use --data.dataset folder:/path or --data.dataset
tfrecord:gs://bucket/path.

train cifar10-10ep --data.image-size 31
The image cannot be divided into patches of 4 x 4 pixels. Received: --data.image-size 31. Use --data.image-size 28 or
--data.image-size 32.

train cifar10-10ep --total-steps 20
The warmup must be shorter than the run of 20 steps. Received: --optimizer.warmup-steps 390. Use
--optimizer.warmup-steps 2.

train cifar10-scratch --data.dataset photos
Unknown dataset 'photos'. It is a folder. Did you mean 'folder:photos'? Use 'digits', a name of
https://www.tensorflow.org/datasets/catalog, 'vtab/<task>', 'folder:/path' with /path/<split>/<class>/<image>,
'csv:/path', 'hf:owner/name', or 'tfrecord:/path'.

train finetune-pets --data.dataset folder:photos --data.validation-split val --weights None
A batch cannot be larger than the 4 training images of 'folder:photos'. Received: --data.batch-size 512. Use
--data.batch-size 4.
No split 'val' in folder:photos. Splits: train, test. Received: --data.validation-split val. Use --data.validation-split
None.

finetune gone
There is no folder 'gone'. Expected a folder with <class>/<image> or <split>/<class>/<image>.

finetune photos --output full
HERE/full is not empty and contains no recipe.json of a previous run; choose another --output.

classify nofile.jpg
There is no image nofile.jpg

classify photos/cat/0.png --model TINY/0.keras
vision_transformer has no head for whole images: fine-tune it by `keras-vit finetune FOLDER --weights FILE`, or see
model.with_head.

evaluate gone.npz --dataset digits
There is no weights file or folder HERE/gone.npz. To load by name, pass 'hf:owner/name' for the Hugging Face Hub, or one
of keras_vit.weights.published_names().

evaluate google/vit --dataset digits
There is no weights file or folder HERE/google/vit. For the Hugging Face Hub pass 'hf:google/vit'.

evaluate TINY/3.keras --dataset folder:photos
'folder:photos' has 2 classes, but the model has 3. Fine-tune it on this data first. If these are some of the model's
classes, see docs/data.md, A part of a model's classes.

evaluate TINY/0.keras --dataset folder:photos
'folder:photos' has 2 classes, but the model has no head. Fine-tune it on this data first.

export m.npz
No output folder. Pass --output FOLDER, which must not exist.

export m.npz --output full
HERE/full is not empty; choose another --output.

export TINY/3.keras --output new --formats int8
int8: calibration requires images. Pass --dataset, such as folder:/path with /path/train/<class>/<image> and
/path/test/<class>/<image>; dynamic-int8 requires none.

convert m.npz taken.npz
HERE/taken.npz already exists. Remove it or pass --overwrite.
"""
ROWS = [error.strip().split("\n", 1) for error in ERRORS.split("\n\n")]


@pytest.mark.parametrize("line,message", ROWS, ids=[line for line, _ in ROWS])
def test_whole_message(line, message, mistake, tiny_files):
    errors = mistake(line.replace("TINY", str(tiny_files)))
    errors = re.sub(r"vision_transformer_\d+", "vision_transformer", errors)  # numbered after models of other tests
    assert errors.partition("keras-vit: ")[2].split() == message.split()  # a note may precede it


def test_missing_package(mistake, monkeypatch):
    monkeypatch.setitem(sys.modules, "apache_beam", None)
    monkeypatch.delitem(sys.modules, "keras_vit.recipes.prepare.beam", raising=False)
    assert "'vit-for-keras[prepare]'" in mistake("prepare photos out --flat --beam-runner DirectRunner")
