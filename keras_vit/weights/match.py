"""Strict loading: every weight of the model and every array of the file has its counterpart, or nothing changes."""

from dataclasses import dataclass


@dataclass(frozen=True)
class LoadReport:
    """What a load did.

    Args:
        loaded: Number of the model's weights that were set.
        skipped: The file's arrays that were left out on request.
        kept: The model's weights that kept their values because their part was left out.
        resized: The (h, w) grids that the positions had and have, or None.
    """

    loaded: int
    skipped: tuple[str, ...] = ()
    kept: tuple[str, ...] = ()
    resized: tuple[tuple[int, int], tuple[int, int]] | None = None


def check_match(path, missing, unused, misshapen, hint):
    """Raises a ValueError with missing, unused and misshapen names side by side, if there are any.

    Args:
        path: The file, for the message.
        missing: Names that the model needs and the file lacks.
        unused: Names in the file that the model has no place for.
        misshapen: (name, shape in the file, shape in the model) of each pair that differs.
        hint: What the user can do.
    """
    if not (missing or unused or misshapen):
        return
    rows = [("missing from the file", "unused in the file")]
    for i in range(max(len(missing), len(unused))):
        rows.append(tuple(names[i] if i < len(names) else "" for names in (sorted(missing), sorted(unused))))
    lines = _columns(rows) if len(rows) > 1 else []
    if misshapen:
        shapes = [(name, str(tuple(found)), str(tuple(wanted))) for name, found, wanted in misshapen]
        lines += _columns([("misshapen", "shape in the file", "shape in the model"), *shapes])
    raise ValueError(
        f"The weights in {path} do not fit the model; nothing was loaded. "
        f"{len(missing)} missing, {len(unused)} unused, {len(misshapen)} misshapen:\n" + "\n".join(lines) + f"\n{hint}"
    )


def _columns(rows):
    widths = [max(len(row[i]) for row in rows) for i in range(len(rows[0]))]
    return ["  " + "  ".join(cell.ljust(width) for cell, width in zip(row, widths)).rstrip() for row in rows]
