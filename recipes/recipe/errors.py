"""What is wrong with a recipe, as data: `str` names fields as Python does, `keras-vit` as its options.

No TensorFlow import here.
"""

from collections.abc import Callable, Iterable, Mapping


def python_argument(field: str, value) -> str:
    """A field and its value as Python's keyword argument, such as "run.folder='runs/x'"."""
    return f"{field}={value!r}"


class RecipeError(ValueError):
    """Fields of a recipe that cannot be used.

    Args:
        reason: What is wrong and what was expected: sentences that name no field.
        received: The values that are wrong, by field, such as {"optimizer.warmup_steps": 10}.
        use: What to use instead, by field; or several alternatives.
    """

    def __init__(self, reason: str, received: Mapping | None = None, use: Mapping | Iterable[Mapping] = ()):
        super().__init__(reason, received, use)
        self.reason = reason
        self.received: Mapping = received or {}
        self.use: tuple[Mapping, ...] = (use,) if isinstance(use, Mapping) else tuple(use)

    def text(self, spell: Callable[[str, object], str] = python_argument) -> str:
        """The message; `spell` returns a field and its value as the user types them."""
        parts = [self.reason]
        if self.received:
            parts.append("Received: " + ", ".join(spell(*item) for item in self.received.items()))
        if self.use:
            alternatives = [" and ".join(spell(*item) for item in fields.items()) for fields in self.use]
            separator = ", or " if any(len(fields) > 1 for fields in self.use) else " or "
            parts.append("Use " + separator.join(alternatives))
        return " ".join(part.rstrip(".") + "." for part in parts)

    def __str__(self):
        return self.text()


class SeveralErrors(ValueError):
    """All that is wrong, so that it can be fixed together; `str` has a line for each."""

    def __init__(self, errors: Iterable[Exception]):
        errors = [inner for error in errors for inner in getattr(error, "errors", (error,))]
        self.errors = tuple({str(error): error for error in errors}.values())
        super().__init__(self.errors)

    def __str__(self):
        return "\n".join(map(str, self.errors))


def check_all(*checks: Callable) -> list:
    """The results of all checks; raises the error of one, or SeveralErrors of several. For ValueError and OSError."""
    results, errors = [], []
    for check in checks:
        try:
            results.append(check())
        except (ValueError, OSError) as error:
            errors.append(error)
    if len(errors) == 1:
        raise errors[0]
    if errors:
        raise SeveralErrors(errors)
    return results
