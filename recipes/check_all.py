"""Several checks at once: all that is wrong is reported together, so that it can be fixed together."""

from collections.abc import Callable


def check_all(*checks: Callable) -> list:
    """The results of all checks.

    Raises:
        ValueError: Some raised a ValueError or OSError; one line for each.
        OSError: A single one did, if that is an OSError.
    """
    results, errors = [], []
    for check in checks:
        try:
            results.append(check())
        except (ValueError, OSError) as error:
            errors.append(error)
    if len(errors) == 1:
        raise errors[0]
    if errors:
        raise ValueError("\n".join(dict.fromkeys(line for error in errors for line in str(error).splitlines())))
    return results
