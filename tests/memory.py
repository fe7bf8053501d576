"""Memory that a process of tests keeps, and why."""

import ctypes
import gc
import sys


def release_memory():
    """Collects models, which refer to themselves in circles, and returns to the system what glibc keeps of them.

    Without it a process takes 5 GB.
    """
    for _ in range(2):  # the second frees what gradient functions of the models held
        gc.collect()
    if sys.platform == "linux":
        ctypes.CDLL(None).malloc_trim(0)
