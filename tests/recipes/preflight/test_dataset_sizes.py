import numpy as np
import pytest
import tensorflow as tf

from keras_vit.recipes.data.digits import SPLITS
from keras_vit.recipes.preflight.dataset_sizes import dataset_size
from keras_vit.recipes.recipe import Data


def test_known_data_sets():
    assert dataset_size(Data(dataset="imagenet2012")) == (1_000, 1_281_167)
    assert dataset_size(Data(dataset="imagenet2012", train_split="train[:99%]")) == (1_000, 1_268_355)
    assert dataset_size(Data(dataset="cifar10", train_split="train[:10%]+train[90%:]")) == (10, 10_000)
    with pytest.raises(ValueError, match=r"No split 'validation' in imagenet2012. Splits: train"):
        dataset_size(Data(dataset="imagenet2012", train_split="validation"))
    assert dataset_size(Data(dataset="vtab/cifar100")) == (100, 1_000)
    assert dataset_size(Data(dataset="digits")) == (10, SPLITS["train"])
    with pytest.raises(ValueError, match="'food101' is unknown. Pass --num-classes"):
        dataset_size(Data(dataset="food101"))


def test_folder(tmp_path):
    for name in ("train/cats", "train/dogs"):
        (tmp_path / name).mkdir(parents=True)
        (tmp_path / name / "1.png").write_bytes(tf.io.encode_png(np.zeros((8, 8, 3), "uint8")).numpy())
    assert dataset_size(Data(dataset=f"folder:{tmp_path}")) == (2, 2)
    (tmp_path / "train.csv").write_text("image,labels\ntrain/cats/1.png,cat;pet\n")
    assert dataset_size(Data(dataset=f"csv:{tmp_path}")) == (2, 1)
