"""The code blocks of README.md and docs/, as a Markdown parser finds them, and commands within the text."""

import re
import shlex
from dataclasses import dataclass
from pathlib import Path

from markdown_it import MarkdownIt

ROOT = Path(__file__).parents[2]
PAGES = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", *sorted((ROOT / "docs").rglob("*.md"))]
MARK = re.compile(r"<!-- test: (run|skip: .+) -->\s*")


@dataclass(frozen=True)
class Block:
    """Text of a block, its language ("sh" if it is indented), line and the mark in the comment before it."""

    page: str
    line: int
    language: str
    text: str
    mark: str


def blocks_of(page: Path) -> list[Block]:
    """All blocks of a page but Sphinx's directives, and commands with arguments within lines.

    Raises:
        ValueError: A comment that begins as a mark says neither "run" nor "skip: <why>".
    """
    found, mark = [], ""
    for token in MarkdownIt("commonmark").enable("table").parse(page.read_text()):
        if token.type == "html_block" and "test:" in token.content:
            match = MARK.fullmatch(token.content)
            if not match:
                raise ValueError(f"{page}:{token.map[0] + 1}: no mark of a block: {token.content}")
            mark = match[1]
            continue
        if token.type in ("fence", "code_block") and not token.info.startswith("{"):
            name = str(page.relative_to(ROOT))
            # A fence's first line is its opening.
            line = token.map[0] + (2 if token.type == "fence" else 1)
            found.append(Block(name, line, token.info or "sh", token.content, mark))
        mark = ""
        for child in token.children or ():
            if child.type == "code_inline" and re.match(r"(keras-vit \S+|python \S+\.py) [^-]", child.content):
                found.append(Block(str(page.relative_to(ROOT)), token.map[0] + 1, "sh", child.content, ""))
    return found


def commands_of(text: str) -> list[list[str]]:
    """The commands of a shell block as words: without comments, assignments before them, and words such as "until"."""
    commands, line = [], ""
    for part in text.replace("\\\n", " ").splitlines():
        line += part + "\n"
        lexer = shlex.shlex(line, posix=True, punctuation_chars=";&|()")
        lexer.whitespace_split = True
        try:
            words = list(lexer)
        except ValueError:  # a quotation that the next line closes
            continue
        line = ""
        commands += _split(words)
    return commands


def _split(words):
    """At operators of the shell."""
    command = []
    for word in [*words, ";"]:
        if set(word) <= set(";&|()"):
            if command:
                yield command
            command = []
        elif command or not (re.fullmatch(r"\w+=.*", word) or word in ("until", "while", "do", "if", "then", "time")):
            command.append(word)
