"""A command line's options and help page, both from the fields of a dataclass: a command, or a recipe."""

import difflib
import shutil
import textwrap
import types
from collections.abc import Iterator
from dataclasses import MISSING, dataclass, fields, is_dataclass
from typing import Any, Literal, Union, get_args, get_origin, get_type_hints

from keras_vit_cli.words import GROUPS, SYNONYMS

OWN = "Options"  # the group of the options that one command has
WIDTH = 110  # of the widest page
COLUMN = 28  # where the texts begin
HELP = ("-h", "--help")
ALWAYS = "--quiet prints no progress; --debug prints the traceback of an error."


@dataclass(frozen=True)
class Option:
    """A word of a command line.

    Args:
        name: "--data.image-size", or of a positional word "MODEL".
        values: What follows it, such as "N" or "X X X"; "" for a flag.
        text: Its meaning and default.
        group: The heading above it.
        is_required: Whether there is no default.
    """

    name: str
    values: str
    text: str
    group: str
    is_required: bool

    @property
    def is_positional(self) -> bool:
        """Whether its place says what it is, and no name."""
        return not self.name.startswith("--")

    @property
    def usage(self) -> str:
        """What is typed."""
        return self.values if self.is_positional else f"{self.name} {self.values}".strip()


def options(kind, default=None, prefix: str = "", group: str = OWN) -> Iterator[Option]:
    """Yields the options of a dataclass, in its order, with defaults of the instance `default`."""
    from tyro.conf import OmitArgPrefixes, Positional, Suppress

    hints, texts = get_type_hints(kind, include_extras=True), _field_texts(kind)
    for field in fields(kind):
        hint, extras = hints[field.name], getattr(hints[field.name], "__metadata__", ())
        hint = get_args(hint)[0] if extras else hint
        if Suppress in extras:
            continue
        value = getattr(default, field.name) if default is not None else _default(field)
        if is_dataclass(hint):
            below = prefix if OmitArgPrefixes in extras else f"{prefix}{field.name}."
            yield from options(hint, value, below, summary(hint))
            continue
        word = next((extra for extra in extras if hasattr(extra, "metavar")), None)
        names = (name for name, words in GROUPS.items() if field.name in words)
        text = texts.get(field.name) or getattr(word, "help", None) or ""
        yield Option(
            field.name.upper() if Positional in extras else _spelled(prefix, field.name, value is True),
            getattr(word, "metavar", None) or _values(hint, field.name),
            " ".join([*text.split(), *_default_text(value)]),
            group if prefix else next(names, group),
            value is MISSING,
        )


def _default(field):
    return field.default_factory() if field.default_factory is not MISSING else field.default


def _spelled(prefix, name, is_on) -> str:
    return f"--{prefix}{'no_' * is_on}{name}".replace("_", "-")


def _field_texts(kind) -> dict[str, str]:
    import docstring_parser

    described = [each for base in kind.__mro__ for each in docstring_parser.parse(base.__doc__ or "").params]
    return {name: each.description or "" for each in described for name in each.arg_name.split(", ")}


def summary(kind) -> str:
    """The first line of what a command or a section does."""
    return (kind.__doc__ or kind.__name__).partition("\n")[0]


def _values(hint, name) -> str:
    """What follows an option of a type: N for an integer, X for another number, else the last word of its name."""
    kind, inner = get_origin(hint), get_args(hint)
    if kind in (Union, types.UnionType):
        *_, one, most = ["", *sorted((_values(each, name) for each in inner if each is not type(None)), key=len)]
        return f"{one} [{most.removeprefix(f'{one} ')}]" if one and most.startswith(f"{one} ") else most
    if kind is Literal:
        return "|".join(map(str, inner))
    if kind is tuple:
        values = [_values(each, name) for each in inner if each is not Ellipsis]
        return " ".join([*values, *["..."] * (Ellipsis in inner)])
    return {bool: "", int: "N", float: "X"}.get(hint, name.rpartition("_")[2].upper())


def _default_text(value) -> list[str]:
    if value is MISSING or value is None or value is False or value in ("", ()):
        return []
    if value is True:
        return ["Default: on."]
    return [f"Default: {' '.join(map(str, value)) if isinstance(value, tuple) else value}."]


def help_page(kind, program: str, default=None, examples=(), search=()) -> str:
    """The help of a command as plain text of the terminal's width; with words to search for, the options with them."""
    found = [each for each in options(kind, default) if _matches(each, search)]
    if search and not found:
        return f"No option of {program} has {' '.join(search)} in its name or text."
    width = min(shutil.get_terminal_size().columns, WIDTH)
    lines = [] if search else _description(kind, program, found, width)
    headings = {each: "" if each.is_positional else each.group for each in found}
    for heading in sorted(set(headings.values()), key=["", *GROUPS, OWN, *headings.values()].index):
        lines += ["", *_wrapped(heading, width)]
        lines += [line for each in found if headings[each] == heading for line in _rows(each, width)]
    if not search:
        lines += ["", *_wrapped(ALWAYS, width)]
        lines += ["", "Examples", *(f"  {line}" for line in examples)] if examples else []
    return "\n".join(lines).strip("\n")


def _matches(option, search) -> bool:
    text = f"{option.usage} {option.text}".lower()
    return all(word.lower() in text for word in search)


def _description(kind, program, found, width) -> list[str]:
    required = [each.usage for each in found if each.is_positional or each.is_required]
    lines = _wrapped(f"usage: {' '.join([program, *required])} [options]", width)
    for paragraph in (kind.__doc__ or "").partition("Args:")[0].strip().split("\n\n"):
        lines += ["", *_wrapped(paragraph, width)]
    return lines


def _wrapped(text, width) -> list[str]:
    return textwrap.wrap(" ".join(text.split()), width, break_on_hyphens=False)


def _rows(option, width: int) -> list[str]:
    """What is typed, and what it means in a column of its own."""
    texts = _wrapped(option.text, max(20, width - COLUMN))
    first = f"  {option.usage}"
    if len(first) > COLUMN - 2:
        texts = ["", *texts]
    return [f"{word:{COLUMN}}{line}".rstrip() for word, line in zip([first, *[""] * len(texts)], texts or [""])]


def parse(kind, program: str, words, default=None, examples=(), returns_unknown: bool = False) -> Any:
    """The instance of a dataclass that a command line describes; with `returns_unknown`, and the other words.

    Raises:
        SystemExit: After the help page, if `--help` is among the words, what follows it being searched for; with
            status 2, for missing words and values of another type.
        ValueError: There is no such option; the message has the one that is meant.
    """
    import tyro

    words = list(words)
    if asked := next((word for word in words if word in HELP), None):
        print(help_page(kind, program, default, examples, words[words.index(asked) + 1 :]))
        raise SystemExit(0)
    if returns_unknown:
        return tyro.cli(kind, prog=program, args=words, default=default, return_unknown_args=True)
    _check(words, list(options(kind, default)), program)
    return tyro.cli(kind, prog=program, args=words, default=default)


def _check(words, known, program):
    flags = {each.name for each in known} | {_other(each.name) for each in known if not each.values}
    for word, value in zip(words, [*words[1:], ""]):
        name = word.partition("=")[0].replace("_", "-")
        if name.startswith("--") and name not in flags:
            raise ValueError(f"There is no option {name}. {_instead(name, known, program)}")
        if name == "--json" and value.endswith(".json"):
            raise ValueError(f"--json prints to standard output. For a file type: --json > {value}")


def _other(flag: str) -> str:
    """--no-x of --x, and --x of --no-x."""
    section, dot, name = flag.removeprefix("--").rpartition(".")
    return f"--{section}{dot}{name.removeprefix('no-') if name.startswith('no-') else f'no-{name}'}"


def _instead(name, known, program) -> str:
    word = name.rpartition(".")[2].removeprefix("--")
    meant = [word, *(other for group in SYNONYMS if word in group for other in group)]
    for each in known:
        plain = each.name.removeprefix("--").lower()
        if any(f".{plain}".endswith(f".{other}") for other in meant):
            return f"Type {program} {each.usage}" if each.is_positional else f"Use {each.usage}"
    similar = difflib.get_close_matches(name, [each.name for each in known], n=3, cutoff=0.6)
    return f"Did you mean {' or '.join(similar)}?" if similar else f"{program} --help lists all."
