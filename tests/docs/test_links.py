"""Links and paths in README.md, CONTRIBUTING.md and docs/ lead to files and headings that exist."""

import re

import pytest
from blocks import PAGES, ROOT
from markdown_it import MarkdownIt

PATH = re.compile(r"(?<![\w/.-])((?:keras_vit|recipes|export|cli|tests|benchmarks|tools|docs)/[\w./]*)")


def tokens(page):
    for token in MarkdownIt("commonmark").enable("table").parse(page.read_text()):
        yield token
        yield from token.children or ()


def headings(page):
    """The anchors of a page, as GitHub and Sphinx name them."""
    texts = re.findall(r"^#+ (.*)$", page.read_text(), re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", text.lower()).replace(" ", "-") for text in texts}


def broken_links(page):
    for token in tokens(page):
        link = token.attrs.get("href") or token.attrs.get("src")
        if link and not re.match(r"\w+:", link):
            name, _, heading = link.partition("#")
            target = page.parent / name if name else page
            if not target.is_file() or (heading and heading not in headings(target)):
                yield link


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_links_and_paths(page):
    assert not list(broken_links(page))
    if page.name != "comparison.md":  # which names files of other projects
        assert not [path for path in PATH.findall(page.read_text()) if not (ROOT / path.rstrip(".")).exists()]


def test_broken_links_are_found(tmp_path):
    (tmp_path / "a.md").write_text("# A heading\n\n[x](#a-heading) [x](b.md) [x](#none) [x](a.md#none) ![x](c.png)\n")
    assert list(broken_links(tmp_path / "a.md")) == ["b.md", "#none", "a.md#none", "c.png"]
