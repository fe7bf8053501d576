"""The largest batch of a device that fits."""

STEP = 8  # sublanes of a tile
MOST_COMPILATIONS = 10


def largest_batch(measure, step: int = STEP) -> int:
    """The largest multiple of `step` that is found to fit in at most ten compilations; 0 if none is.

    Memory grows nearly linearly with the batch, so two compilations say where to look and few more find it.

    Args:
        measure: From a batch to its `StepReport`.
        step: A multiple of 8, and of the parts that a batch is cut into.

    Raises:
        ValueError: The step cannot run at all.
    """
    found = {}  # batch: needed bytes, or None where the compiler ran out of memory

    def fits(batch):
        report = measure(batch)
        if report.problems and not any("RESOURCE_EXHAUSTED" in problem for problem in report.problems):
            raise ValueError(f"The step cannot run at any batch: {report.problems[0]}")
        found[batch] = report.needed if report.memory else None
        return report.fits, report.limit

    good, bad, guess = 0, None, 4 * step
    for _ in range(MOST_COMPILATIONS):
        fine, limit = fits(guess)
        good, bad = (max(good, guess), bad) if fine else (good, guess if bad is None else min(bad, guess))
        if bad is not None and bad - good <= step:
            break
        guess = _next(found, limit, good, bad, step)
    return good


def _next(found, limit, good, bad, step):
    """A batch to try: by a line through the last two while everything fits, then halfway to what does not.

    Near the limit the compiler saves memory by computing more, and no line holds: so it is not followed far.
    """
    if bad is not None:
        return max(step, (good + bad) // 2 // step * step)
    if len(found) == 1:
        return 2 * good
    (small, less), (big, more) = sorted(found.items())[-2:]
    guess = big + (limit - more) / max(1.0, (more - less) / (big - small))
    guess = min(guess, 1.25 * good if more > 0.9 * limit else 4 * good)
    # A step further than the line says, to see whether it is the end.
    return max(int(guess) // step * step, good + step)
