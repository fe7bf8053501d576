"""A full disk: files of this process may not grow beyond a size."""

import resource
from contextlib import contextmanager


@contextmanager
def full_disk(max_bytes: int):
    """Writes beyond the first `max_bytes` of a file fail, as the system refuses them ("File too large")."""
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (max_bytes, hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
