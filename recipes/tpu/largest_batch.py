"""The largest batch of a device that fits."""

STEP = 8  # sublanes of a tile
MOST_COMPILATIONS = 8


def largest_batch(measure) -> int:
    """Looks for the largest multiple of 8 that fits; 0 if not even 8 do.

    Memory grows nearly linearly with the batch, so two compilations say where to look and few more find it.

    Args:
        measure: From a batch to its `StepReport`.

    Raises:
        ValueError: The step cannot run at all.
    """
    found = {}  # batch: needed bytes, or None where the compiler ran out of memory

    def fits(batch):
        step = measure(batch)
        if step.problems and not any("RESOURCE_EXHAUSTED" in problem for problem in step.problems):
            raise ValueError(f"The step cannot run at any batch: {step.problems[0]}")
        found[batch] = step.needed if step.memory else None
        return step.fits, step.limit

    good, bad, guess = 0, None, 4 * STEP
    for _ in range(MOST_COMPILATIONS):
        fine, limit = fits(guess)
        good, bad = (max(good, guess), bad) if fine else (good, guess if bad is None else min(bad, guess))
        if bad is not None and bad - good <= STEP:
            break
        guess = _next(found, limit, good, bad)
    return good


def _next(found, limit, good, bad):
    """A batch between the largest that fits and the smallest that does not, by a line through the last two."""
    known = sorted((batch, needed) for batch, needed in found.items() if needed is not None)[-2:]
    if len(known) < 2:
        guess = 2 * good or bad // 4
    else:
        (small, less), (big, more) = known
        slope = max(1.0, (more - less) / (big - small))
        guess = int(big + (limit - more) / slope)
        # A step further than the line says, to see whether it is the end.
        guess = guess + STEP if guess // STEP * STEP == good else guess
    guess = max(STEP, guess // STEP * STEP)
    low, high = good + STEP, (bad - STEP if bad is not None else max(8 * good, 4 * STEP))
    return min(max(guess, low), max(high, low))
