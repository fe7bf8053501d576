"""A full disk: files of this process may not grow beyond a size."""

import resource
import sys
from contextlib import contextmanager

import pytest


@contextmanager
def full_disk(max_bytes: int):
    """Writes beyond the first `max_bytes` of a file fail, as the system refuses them ("File too large")."""
    if "coverage" in sys.modules and sys.modules["coverage"].Coverage.current():
        pytest.skip("The files of coverage.py would be truncated, too.")
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (max_bytes, hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
