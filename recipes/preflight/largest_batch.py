"""Search for the largest per-device batch that fits in memory."""

from collections.abc import Callable

from keras_vit.recipes.preflight.report import StepReport

GRANULARITY = 8  # sublanes of a tile
MAX_COMPILATIONS = 10


def largest_batch(compile_step: Callable[[int], StepReport], granularity: int = GRANULARITY) -> int:
    """The largest multiple of `granularity` found to fit within ten compilations; 0 if none fits.

    Memory grows nearly linearly with the batch, so two compilations predict the limit and a few more confirm it.

    Args:
        compile_step: Compiles the step at a batch size and returns its report.
        granularity: A multiple of 8 and of the recipe's accumulation steps.

    Raises:
        ValueError: The step cannot run at any batch size.
    """
    required: dict[int, float | None] = {}  # bytes by batch size; None where the compiler ran out of memory
    fits, too_large, guess = 0, None, 4 * granularity
    for _ in range(MAX_COMPILATIONS):
        report = compile_step(guess)
        if report.problems and not any("RESOURCE_EXHAUSTED" in problem for problem in report.problems):
            raise ValueError(f"The step cannot run at any batch size: {report.problems[0]}")
        required[guess] = report.required_memory if report.memory else None
        if report.fits:
            fits = max(fits, guess)
        else:
            too_large = guess if too_large is None else min(too_large, guess)
        if too_large is not None and too_large - fits <= granularity:
            break
        guess = _next_guess(required, report.memory_limit, fits, too_large, granularity)
    return fits


def _next_guess(required, limit, fits, too_large, granularity):
    """Extrapolates from the last two batches while everything fits, then bisects.

    Near the limit the compiler trades computation for memory and growth is no longer linear, so the extrapolation is
    capped.
    """
    if too_large is not None:
        return max(granularity, (fits + too_large) // 2 // granularity * granularity)
    if len(required) == 1:
        return 2 * fits
    (small, less), (big, more) = sorted(required.items())[-2:]
    guess = big + (limit - more) / max(1.0, (more - less) / (big - small))
    guess = min(guess, 1.25 * fits if more > 0.9 * limit else 4 * fits)
    # At least one step beyond what is known to fit, to confirm the limit.
    return max(int(guess) // granularity * granularity, fits + granularity)
