"""Images a few at a time."""


def in_batches(images, batch_size: int):
    """Yields parts of (n, ...) of at most `batch_size`.

    Raises:
        ValueError: There are none.
    """
    if not len(images) or batch_size < 1:
        raise ValueError(f"Expected images, and a batch of at least 1. Received: {len(images)} and {batch_size}")
    for start in range(0, len(images), batch_size):
        yield images[start : start + batch_size]
