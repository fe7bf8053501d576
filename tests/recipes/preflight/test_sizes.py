"""Topologies, sizes of data sets, tiles of a TPU, and the search for the largest batch."""

import re
from types import SimpleNamespace

import numpy as np
import pytest
import tensorflow as tf

from keras_vit.recipes.data.datasets import DIGITS_SPLITS
from keras_vit.recipes.preflight.report import CHIPS, parse_topology
from keras_vit.recipes.preflight.run_preflight import dataset_size, largest_batch, tiling_notes
from keras_vit.recipes.recipe import Data

LIMIT = 16e9


@pytest.mark.parametrize(
    "name,num_chips,replicas",
    [("v3:2x2", 4, 8), ("v5e:2x4", 8, 8), ("v4:2x2x2", 8, 8), ("v5e:1", 1, 1), ("v2:1", 1, 2)],
)
def test_parse_topology(name, num_chips, replicas):
    topology = parse_topology(name)
    assert (topology.name, topology.num_chips, topology.replicas) == (name, num_chips, replicas)


# Of Google's pages of TPU versions and, for machines, of GKE: TensorCores are counted up to v4 and in v5p.
GOOGLES = "v2-8 v2:2x2 v3-8 v3:2x2 v3-32 v3:4x4 v3-256 v3:8x16 v4-8 v4:2x2x1 v4-16 v4:2x2x2 v4-32 v4:2x2x4 "
GOOGLES += "v5litepod-1 v5e:1 v5litepod-4 v5e:2x2 v5litepod-8 v5e:2x4 v5litepod-256 v5e:16x16 V5E-32 v5e:4x8 "
GOOGLES += "v5p-8 v5p:2x2x1 v5p-64 v5p:2x4x4 v6e-1 v6e:1 v6e-8 v6e:2x4 v6e-128 v6e:8x16 "
GOOGLES += "ct4p-hightpu-4t v4:2x2x1 ct5lp-hightpu-8t v5e:2x4 ct5p-hightpu-4t v5p:2x2x1 ct6e-standard-4t v6e:2x2"


@pytest.mark.parametrize("name,topology", list(zip(GOOGLES.split()[::2], GOOGLES.split()[1::2])))
def test_googles_names_of_slices_and_machines(name, topology):
    assert parse_topology(name) == parse_topology(topology)


@pytest.mark.parametrize(
    "name",
    [
        "v5e",
        "v5e-6",
        "v3-7",
        "v4-1536",
        "tpu7x-8",
        "v9:2x2",
        "v5e:2x2x2x2",
        "v5e:0x2",
        "v5e:3x3",
        "v5e:2x2x2",
        "v4:2x2",
        "2x2",
        "",
    ],
)
def test_invalid_topologies(name):
    with pytest.raises(ValueError, match="Received: "):
        parse_topology(name)


def test_example_topologies_are_valid():
    assert all(parse_topology(name).chip is chip for chip in CHIPS.values() for name in chip.slices)


@pytest.mark.parametrize(
    "dataset,split,size",
    [
        ("imagenet2012", "train", (1_000, 1_281_167)),
        ("imagenet2012", "train[:99%]", (1_000, 1_268_355)),
        ("cifar10", "train[:10%]+train[90%:]", (10, 10_000)),
        ("digits", "train", (10, DIGITS_SPLITS["train"])),
    ],
)
def test_sizes_of_known_data_sets(dataset, split, size):
    assert dataset_size(Data(dataset=dataset, train_split=split)) == size


def test_sizes_of_tasks_folders_and_lists(tmp_path):
    assert dataset_size(Data(dataset="vtab/cifar100")) == (100, 1_000)
    for data, word in ((Data("imagenet2012", train_split="validation"), "'validation'"), (Data("food101"), "food101")):
        with pytest.raises(ValueError, match=word):
            dataset_size(data)
    for name in ("train/cats", "train/dogs"):
        (tmp_path / name).mkdir(parents=True)
        (tmp_path / name / "1.png").write_bytes(tf.io.encode_png(np.zeros((8, 8, 3), "uint8")).numpy())
    assert dataset_size(Data(dataset=f"folder:{tmp_path}")) == (2, 2)
    (tmp_path / "train.csv").write_text("image,labels\ntrain/cats/1.png,cat;pet\n")
    assert dataset_size(Data(dataset=f"csv:{tmp_path}")) == (2, 1)


def model(grid=(16, 16), **changes):
    """Stands for a model: the attributes that the notes read. 256 tokens, no class token."""
    config = SimpleNamespace(**{"width": 256, "mlp_dim": 512, "num_heads": 2, **changes})
    return SimpleNamespace(config=config, grid=grid, patch_size=(16, 16), prefix_tokens=0)


@pytest.mark.parametrize(
    "subject,batch,notes",
    [
        (model(), 16, []),
        (SimpleNamespace(), 16, []),  # a model of another class
        (SimpleNamespace(), 3, ["3 images .* use 8"]),
        (
            model(width=192, mlp_dim=300, num_heads=3),
            12,
            ["12 images .* use 16", "width 192: 25%.* use 256", "mlp_dim 300: 22%.* use 384", "width 64 .*50%"],
        ),
        (model(grid=(14, 14)), 8, ["196 tokens 23%.* padding; 0% with 256 px, 5% with 176 px"]),
        (model(grid=(14, 15)), 8, []),  # not square: no other size is known
    ],
)
def test_notes_suggest_sizes_with_less_padding(subject, batch, notes):
    found = tiling_notes(subject, batch)
    assert len(found) == len(notes)
    for note, pattern in zip(found, notes):
        assert re.search(pattern, note), note


def compiler(required, limit=LIMIT):
    """A step of this memory by batch size; above the limit the compiler only reports that. And the batches tried."""
    compiled = []

    def compile_step(batch):
        compiled.append(batch)
        if required(batch) > limit:
            result = {"problems": ("RESOURCE_EXHAUSTED",), "memory": {}, "fits": False, "required_memory": 0}
        else:
            result = {"problems": (), "memory": {"temp": 1}, "fits": True, "required_memory": required(batch)}
        return SimpleNamespace(memory_limit=LIMIT, **result)

    return compile_step, compiled


@pytest.mark.parametrize(
    "fixed,per_image,quadratic,granularity",
    [
        *((1e9, 40e6, 0, 8), (1e9, 40e6, 1e3, 8), (9e9, 800e6, 0, 8), (1e9, 1e6, 0, 8)),
        *((0, 1.9e9, 0, 8), (15e9, 20e6, 0, 8), (1e9, 40e6, 0, 24)),
    ],
)
def test_largest_batch_in_few_compilations(fixed, per_image, quadratic, granularity):
    required = lambda batch: fixed + per_image * batch + quadratic * batch**2  # noqa: E731
    compile_step, compiled = compiler(required)
    found = largest_batch(compile_step, granularity)
    assert found > 0 and all(batch % granularity == 0 for batch in (found, *compiled)) and len(compiled) <= 8
    assert required(found) <= LIMIT < required(found + granularity)


def test_largest_batch_of_a_compiler_that_saves_memory_near_the_limit():
    """From 200 to 280 images memory stays at 15.9 GB; above, the compiler fails."""
    compile_step, compiled = compiler(lambda batch: min(1e9 + 74e6 * batch, 15.9e9) if batch <= 280 else 17e9)
    assert 272 <= largest_batch(compile_step) <= 280 and len(compiled) <= 10


def test_no_batch_fits_or_can_run():
    compile_step, compiled = compiler(lambda batch: 17e9)
    assert largest_batch(compile_step) == 0 and len(compiled) <= 8
    step = SimpleNamespace(problems=("PyFunc",), memory={}, fits=False, memory_limit=LIMIT, required_memory=0)
    with pytest.raises(ValueError, match="PyFunc"):
        largest_batch(lambda batch: step)
