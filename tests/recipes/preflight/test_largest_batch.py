from types import SimpleNamespace

import pytest

from keras_vit.recipes.preflight.largest_batch import largest_batch

LIMIT = 16e9


def chip(fixed, each, curve=0.0):
    """A step whose memory is about linear in the batch; beyond the limit the compiler says nothing but that."""
    asked = []

    def measure(batch):
        asked.append(batch)
        needed = fixed + each * batch + curve * batch**2
        if needed > LIMIT:
            return SimpleNamespace(problems=("RESOURCE_EXHAUSTED: ...",), memory={}, fits=False, limit=LIMIT, needed=0)
        return SimpleNamespace(problems=(), memory={"temp": 1}, fits=True, limit=LIMIT, needed=needed)

    return measure, asked


@pytest.mark.parametrize(
    "fixed,each,curve",
    [(1e9, 40e6, 0), (1e9, 40e6, 1e3), (9e9, 800e6, 0), (1e9, 1e6, 0), (0, 1.9e9, 0), (15e9, 20e6, 0)],
)
def test_the_largest_multiple_of_8_is_found_in_few_compilations(fixed, each, curve):
    measure, asked = chip(fixed, each, curve)
    found = largest_batch(measure)
    assert found % 8 == 0 and found > 0 and len(asked) <= 8
    assert fixed + each * found + curve * found**2 <= LIMIT
    assert fixed + each * (found + 8) + curve * (found + 8) ** 2 > LIMIT


def test_a_multiple_of_what_the_batch_is_cut_into():
    measure, asked = chip(1e9, 40e6)
    found = largest_batch(measure, 24)
    assert found == 375 // 24 * 24 and all(batch % 24 == 0 for batch in asked) and len(asked) <= 8


def test_a_compiler_that_saves_memory_near_the_limit():
    """From 200 images on memory stays at 15.9 GB, until at more than 280 nothing helps."""
    asked = []

    def measure(batch):
        asked.append(batch)
        if batch > 280:
            return SimpleNamespace(problems=("RESOURCE_EXHAUSTED: ...",), memory={}, fits=False, limit=LIMIT, needed=0)
        return SimpleNamespace(
            problems=(), memory={"temp": 1}, fits=True, limit=LIMIT, needed=min(1e9 + 74e6 * batch, 15.9e9)
        )

    assert 272 <= largest_batch(measure) <= 280 and len(asked) <= 10


def test_none_may_fit():
    measure, asked = chip(17e9, 1e6)
    assert largest_batch(measure) == 0 and len(asked) <= 8


def test_a_step_that_never_runs_is_said():
    step = SimpleNamespace(problems=("PyFunc in vit calls back",), memory={}, fits=False, limit=LIMIT, needed=0)
    with pytest.raises(ValueError, match="cannot run at any batch: PyFunc in vit"):
        largest_batch(lambda batch: step)
