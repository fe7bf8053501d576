"""The largest batch of a device that fits."""

STEP = 8  # sublanes of a tile
MOST_COMPILATIONS = 10


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
    """A batch to try: by a line through the last two while everything fits, then halfway to what does not.

    Near the limit the compiler saves memory by computing more, and no line holds: so it is not followed far.
    """
    if bad is not None:
        return max(STEP, (good + bad) // 2 // STEP * STEP)
    if len(found) == 1:
        return 2 * good
    (small, less), (big, more) = sorted(found.items())[-2:]
    guess = big + (limit - more) / max(1.0, (more - less) / (big - small))
    guess = min(guess, 1.25 * good if more > 0.9 * limit else 4 * good)
    # A step further than the line says, to see whether it is the end.
    return max(int(guess) // STEP * STEP, good + STEP)
