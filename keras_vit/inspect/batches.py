"""Batches of an array."""


def in_batches(images, batch_size: int):
    """Yields slices of (n, ...) of at most `batch_size`.

    Raises:
        ValueError: There are no images, or `batch_size` is less than 1.
    """
    if not len(images) or batch_size < 1:
        raise ValueError(f"Expected images and a positive batch size. Received: {len(images)} images, {batch_size=}")
    for start in range(0, len(images), batch_size):
        yield images[start : start + batch_size]
