"""The diagram of docs/layout.md equals the imports, and every path in README.md, CONTRIBUTING.md and docs/ exists."""

import ast
import re

import pytest
from blocks import PAGES, ROOT

PAGE = (ROOT / "docs" / "layout.md").read_text()
PLACES = {"recipes": "keras_vit.recipes", "export": "keras_vit.export", "cli": "keras_vit_cli"}


def diagram():
    """Each package or module of the diagram with the number of its row, from the top."""
    text = re.search(r"```text\n(.*?)```", PAGE, re.DOTALL)[1]
    rows = [re.split(r" {2,}", line)[0].split(" | ") for line in text.splitlines()]
    return {name: number for number, row in enumerate(rows) for name in row}


def modules():
    """Every file of the code with its module name."""
    for top in ("keras_vit", *PLACES):
        for file in (ROOT / top).rglob("*.py"):
            folder, *parts = file.relative_to(ROOT).with_suffix("").parts
            if parts[0] not in PLACES or folder != "keras_vit":  # keras_vit/recipes is a link to recipes
                yield file, ".".join([PLACES.get(folder, folder), *parts]).removesuffix(".__init__")


def imports(file):
    for node in ast.walk(ast.parse(file.read_text())):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.module:
            # `from keras_vit import weights` imports a module, `from keras_vit import load` a name of keras_vit.
            yield from (f"{node.module}.{alias.name}" for alias in node.names)


def row_of(name, rows):
    """The entry of the diagram that a module, or a name in a module, belongs to; None for other packages."""
    entries = [entry for entry in rows if name == entry or name.startswith(entry + ".")]
    if entries == ["keras_vit"] and "." in name and (ROOT / "keras_vit" / f"{name.split('.')[1]}.py").is_file():
        return "keras_vit.*"
    return max(entries, key=len, default=None)


def test_rows_import_only_from_rows_below():
    rows = diagram()
    for file, module in modules():
        here = row_of(module, rows)
        assert here, f"{module} is missing in the diagram"
        for other in {row_of(name, rows) for name in imports(file)} - {None, here}:
            assert rows[here] < rows[other], f"{file} imports {other}"


@pytest.mark.parametrize("page", [page for page in PAGES if page.name != "comparison.md"], ids=lambda page: page.name)
def test_paths_exist(page):
    """comparison.md names files of other projects."""
    paths = re.findall(
        r"(?<![\w/.-])((?:keras_vit|recipes|export|cli|tests|benchmarks|docs)/[\w./]*)", page.read_text()
    )
    assert not [path for path in paths if not (ROOT / path.rstrip(".")).exists()]
