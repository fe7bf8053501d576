"""Random faults, each repeatable by its seed: what is lost, silently wrong, or ends in a traceback.

Command: python benchmarks/faults.py --faults 2000 --seed 0 [--kinds weights,training] [--seconds 3600]
Damages files (flipped bits, zeros, truncation, foreign bytes) and reads them back, kills and terminates trainings and
resumes them, and fills a disk. A fault holds if the result is bit for bit that without the fault, or a ValueError or
OSError of one sentence. Formats without checksums (.safetensors, .weights.h5) hold flipped numbers that nobody can
notice: there the loaded weights must be those that another reader finds in the damaged file.
"""

import argparse
import collections
import os
import sys
import tempfile
import time
from pathlib import Path

import numpy as np

sys.path.insert(0, str(Path(__file__).parent))

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")
os.environ.setdefault("CUDA_VISIBLE_DEVICES", "")


class Lost(AssertionError):
    """The fault changed a result, or ended in an error that no user understands."""


def damage(data: bytes, random: np.random.Generator) -> bytes:
    """The bytes with one random fault: flipped bits, zeros, a shorter or a longer file, or other bytes."""
    data, kind = (
        bytearray(data),
        random.choice(["flip", "flips", "zeros", "truncate", "noise", "grow", "empty", "head"]),
    )
    place = int(random.integers(max(len(data), 1)))
    count = int(random.integers(1, 4096))
    if kind == "flip" and data:
        data[place] ^= 1 << int(random.integers(8))
    elif kind == "head" and data:  # where formats declare names, shapes and sizes
        data[place % min(len(data), 2048)] ^= 1 << int(random.integers(8))
    elif kind == "flips":
        for place in random.integers(max(len(data), 1), size=16 if data else 0):
            data[place] ^= 1 << int(random.integers(8))
    elif kind in ("zeros", "noise"):
        length = len(data[place : place + count])
        data[place : place + count] = bytes(length) if kind == "zeros" else random.bytes(length)
    elif kind == "grow":
        data += random.bytes(count)
    else:
        data = data[:place] if kind == "truncate" else bytearray()
    return bytes(data)


def check_error(error: BaseException, names: tuple[str, ...]):
    """Raises Lost unless an error is one of the documented classes and its first line says what is wrong with what."""
    if not isinstance(error, ValueError | OSError):
        raise Lost(f"{type(error).__name__}: {str(error)[:300]}") from error
    text = str(error)
    if isinstance(error, UnicodeError) or "Traceback" in text or not any(name in text for name in names):
        raise Lost(f"{type(error).__name__} does not name the file: {text[:300]}") from error


def same(found, expected, what="weights"):
    """Raises Lost unless two lists of arrays are equal bit for bit."""
    if len(found) != len(expected) or not all(
        np.asarray(a).tobytes() == np.asarray(b).tobytes() for a, b in zip(found, expected)
    ):
        raise Lost(f"silently different {what}")


def main(arguments=None) -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--seed", type=int, default=0, help="seed of the first fault; the next ones count upwards")
    parser.add_argument("--faults", type=int, default=None, help="number of faults (default: 2000, or by --seconds)")
    parser.add_argument("--seconds", type=float, default=None, help="stop after this time")
    parser.add_argument("--kinds", default="", help="only kinds whose names contain one of these, by commas")
    options = parser.parse_args(arguments)
    faults = options.faults if options.faults is not None else (2000 if options.seconds is None else 10**9)
    wanted = options.kinds.split(",")
    with tempfile.TemporaryDirectory() as folder:
        from fault_kinds import kinds

        tables = run(kinds(Path(folder), wanted), Path(folder), options.seed, faults, options.seconds)
    return report(*tables)


def run(kinds, folder: Path, seed: int, faults: int, seconds: float | None = None):
    """Makes faults of all kinds in turn, often those that are cheap.

    Args:
        kinds: Name -> (weight, function of (folder, random) that raises Lost).

    Returns:
        Number of tries by kind, and (kind, seed, reason) of each failure.
    """
    if not kinds:
        raise SystemExit("No kind of fault has such a name. Without --kinds all are made, and listed at the end.")
    names, start = list(kinds), time.monotonic()
    weights = np.array([kinds[name][0] for name in names], "float64")
    tried: collections.Counter = collections.Counter()
    failed: list[tuple[str, int, str]] = []
    for number in range(seed, seed + faults):
        if seconds is not None and time.monotonic() - start > seconds:
            break
        random = np.random.default_rng(number)
        name = names[random.choice(len(names), p=weights / weights.sum())]
        tried[name] += 1
        with tempfile.TemporaryDirectory(dir=folder) as place:
            try:
                kinds[name][1](Path(place), random)
            except Lost as error:
                failed.append((name, number, str(error).partition("\n")[0]))
            except Exception as error:
                failed.append((name, number, f"the harness: {type(error).__name__}: {error}".partition("\n")[0]))
    return tried, failed


def report(tried, failed) -> int:
    """Prints the table and the failures; returns the exit status."""
    lost = collections.Counter(name for name, _, _ in failed)
    print("| kind | tried | held | failed |\n|---|---|---|---|")
    for name in sorted(tried):
        print(f"| {name} | {tried[name]} | {tried[name] - lost[name]} | {lost[name]} |")
    print(f"| all | {sum(tried.values())} | {sum(tried.values()) - len(failed)} | {len(failed)} |")
    for name, number, reason in failed:
        print(f"seed {number}, {name}: {reason}")
    return int(bool(failed))


if __name__ == "__main__":
    import faults  # so that fault_kinds raises the same Lost

    sys.exit(faults.main())
