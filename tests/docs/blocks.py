"""The code blocks of README.md, CONTRIBUTING.md and docs/, and the inline commands."""

import re
import shlex
from dataclasses import dataclass
from pathlib import Path

from markdown_it import MarkdownIt

ROOT = Path(__file__).parents[2]
PAGES = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", *sorted((ROOT / "docs").rglob("*.md"))]
MARK = re.compile(r"<!-- test: (run|skip: .+) -->\s*")
INLINE_COMMAND = re.compile(r"(keras-vit \S+|python \S+\.py) [^-]")
SHELL_KEYWORDS = ("until", "while", "do", "if", "then", "time")


@dataclass(frozen=True)
class Block:
    """A code block: its page, first line, language ("sh" if indented), text, and the mark in the comment before it."""

    page: str
    line: int
    language: str
    text: str
    mark: str

    def __str__(self):
        return f"{self.page}:{self.line}"


def blocks_of(page: Path) -> list[Block]:
    """All code blocks of a page except Sphinx directives, and inline commands with arguments.

    Raises:
        ValueError: A comment contains "test:" but is neither "run" nor "skip: <reason>".
    """
    found, mark = [], ""
    for token in MarkdownIt("commonmark").enable("table").parse(page.read_text()):
        if token.type == "html_block" and "test:" in token.content:
            match = MARK.fullmatch(token.content)
            if not match:
                raise ValueError(
                    f"{page}:{token.map[0] + 1}: Expected `<!-- test: run -->` or `<!-- test: skip: reason -->`. "
                    f"Received: {token.content}"
                )
            mark = match[1]
            continue
        name = str(page.relative_to(ROOT))
        if token.type in ("fence", "code_block") and not token.info.startswith("{"):
            line = token.map[0] + (2 if token.type == "fence" else 1)  # skips the line of the fence
            found.append(Block(name, line, token.info or "sh", token.content, mark))
        mark = ""
        for child in token.children or ():
            if child.type == "code_inline" and INLINE_COMMAND.match(child.content):
                found.append(Block(name, token.map[0] + 1, "sh", child.content, ""))
    return found


def commands_of(text: str) -> list[list[str]]:
    """The commands of a shell block as lists of words, without comments, leading assignments and shell keywords."""
    commands, line = [], ""
    for part in text.replace("\\\n", " ").splitlines():
        line += part + "\n"
        lexer = shlex.shlex(line, posix=True, punctuation_chars=";&|()")
        lexer.whitespace_split = True
        try:
            words = list(lexer)
        except ValueError:  # an open quotation mark, closed on a later line
            continue
        line = ""
        if ">" in words:  # standard output to a file
            at = words.index(">")
            del words[at : at + 2]
        commands += _split_at_operators(words)
    return commands


def _split_at_operators(words):
    command = []
    for word in [*words, ";"]:
        if set(word) <= set(";&|()"):
            if command:
                yield command
            command = []
        elif command or not (re.fullmatch(r"\w+=.*", word) or word in SHELL_KEYWORDS):
            command.append(word)
