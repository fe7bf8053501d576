"""Phrases that the glossary of CONTRIBUTING.md replaces. Single words are checked by `typos`, see pyproject.toml."""

import re
import subprocess
from pathlib import Path

import pytest

pytestmark = pytest.mark.slow

ROOT = Path(__file__).parents[1]
PHRASES = {
    r"go(es)? on (from|with|to|after|as)": "resumes from, continues with",
    r"broken off": "interrupted",
    r"(left|leave|leaves|leaving) (away|out)": "omitted, skipped",
    r"running means?": "exponential moving average (EMA)",
    r"passes over": "epochs",
    r"points lost": "accuracy drop",
    r"whole numbers?": "integer",
    r"remed(y|ies)": "fix",
    r"former (run|process|checkpoint|step)": "previous",
    r"not told|is told|was told": "not specified, reported",
}
TEXT = {".py", ".md", ".html", ".js", ".cfg", ".toml"}


def test_texts_use_the_words_of_the_glossary():
    files = subprocess.run(["git", "ls-files"], cwd=ROOT, capture_output=True, text=True, check=True).stdout.split()
    found = [
        f"{file}:{number}: {match[0]!r}, write: {fix}"
        for file in files
        if Path(file).suffix in TEXT
        and (ROOT / file).is_file()
        and file not in ("CONTRIBUTING.md", "tests/test_words.py")
        for number, line in enumerate((ROOT / file).read_text().partition("<!-- old names -->")[0].splitlines(), 1)
        for phrase, fix in PHRASES.items()
        if (match := re.search(rf"\b({phrase})\b", line, re.IGNORECASE))
    ]
    assert not found, "\n" + "\n".join(found)
