from types import SimpleNamespace

import pytest

from keras_vit.recipes.preflight.largest_batch import largest_batch

LIMIT = 16e9


def memory_model(fixed, per_image, quadratic=0.0):
    """A step whose memory is nearly linear in the batch size; above the limit the compiler only reports that."""
    compiled = []

    def compile_step(batch):
        compiled.append(batch)
        required = fixed + per_image * batch + quadratic * batch**2
        if required > LIMIT:
            return SimpleNamespace(
                problems=("RESOURCE_EXHAUSTED: ...",), memory={}, fits=False, memory_limit=LIMIT, required_memory=0
            )
        return SimpleNamespace(problems=(), memory={"temp": 1}, fits=True, memory_limit=LIMIT, required_memory=required)

    return compile_step, compiled


@pytest.mark.parametrize(
    "fixed,per_image,quadratic",
    [(1e9, 40e6, 0), (1e9, 40e6, 1e3), (9e9, 800e6, 0), (1e9, 1e6, 0), (0, 1.9e9, 0), (15e9, 20e6, 0)],
)
def test_largest_multiple_of_8_in_few_compilations(fixed, per_image, quadratic):
    compile_step, compiled = memory_model(fixed, per_image, quadratic)
    found = largest_batch(compile_step)
    assert found % 8 == 0 and found > 0 and len(compiled) <= 8
    assert fixed + per_image * found + quadratic * found**2 <= LIMIT
    assert fixed + per_image * (found + 8) + quadratic * (found + 8) ** 2 > LIMIT


def test_other_granularity():
    compile_step, compiled = memory_model(1e9, 40e6)
    found = largest_batch(compile_step, 24)
    assert found == 375 // 24 * 24 and all(batch % 24 == 0 for batch in compiled) and len(compiled) <= 8


def test_compiler_that_saves_memory_near_the_limit():
    """From 200 to 280 images memory stays at 15.9 GB; above, the compiler fails."""
    compiled = []

    def compile_step(batch):
        compiled.append(batch)
        if batch > 280:
            return SimpleNamespace(
                problems=("RESOURCE_EXHAUSTED: ...",), memory={}, fits=False, memory_limit=LIMIT, required_memory=0
            )
        return SimpleNamespace(
            problems=(),
            memory={"temp": 1},
            fits=True,
            memory_limit=LIMIT,
            required_memory=min(1e9 + 74e6 * batch, 15.9e9),
        )

    assert 272 <= largest_batch(compile_step) <= 280 and len(compiled) <= 10


def test_nothing_fits():
    compile_step, compiled = memory_model(17e9, 1e6)
    assert largest_batch(compile_step) == 0 and len(compiled) <= 8


def test_step_that_cannot_run():
    step = SimpleNamespace(
        problems=("PyFunc in vit calls back",), memory={}, fits=False, memory_limit=LIMIT, required_memory=0
    )
    with pytest.raises(ValueError, match="cannot run at any batch size: PyFunc in vit"):
        largest_batch(lambda batch: step)
