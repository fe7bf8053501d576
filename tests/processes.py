"""Separate Python processes that tests start."""

import sys
from pathlib import Path

# Without garbage collections, which take a fifth of the time of importing TensorFlow.
START = f"""import gc, runpy, sys
gc.disable()
sys.path.append({str(Path(__file__).parent)!r})
runpy.run_path(sys.argv.pop(1), run_name="__main__")"""


def script(file, *arguments) -> list[str]:
    """The command that runs a file with arguments: its `sys.argv[1:]`."""
    return [sys.executable, "-c", START, str(file), *map(str, arguments)]
