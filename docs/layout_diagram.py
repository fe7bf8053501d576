"""Draws docs/images/layout.svg, which package imports which, from the import statements of the code.

Command: python docs/layout_diagram.py

The folder keras_vit/ counts as two: its files that build on no other package ("foundations"), and those that people
import models from. An arrow is left out where a way over other packages leads to the same.
"""

import ast
from pathlib import Path
from xml.sax.saxutils import escape

ROOT = Path(__file__).parents[1]
IMAGE = ROOT / "docs" / "images" / "layout.svg"
TOPS = {"keras_vit": "keras_vit", "recipes": "keras_vit.recipes", "export": "keras_vit.export", "cli": "keras_vit.cli"}
FOUNDATIONS = "keras_vit/*.py"
WIDTH, HEIGHT, GAP_X, GAP_Y = 270, 88, 24, 40  # of a box, and between boxes


def modules() -> dict[str, Path]:
    """Every module by the name under which it is installed."""
    found = {}
    for folder, name in TOPS.items():
        for file in sorted((ROOT / folder).rglob("*.py")):
            parts = [part for part in file.relative_to(ROOT / folder).with_suffix("").parts if part != "__init__"]
            found[".".join([name, *parts])] = file
    return found


def imports(file: Path, known: dict[str, Path]) -> set[str]:
    """The modules of ours that a file imports, within functions too."""
    names = set()
    for node in ast.walk(ast.parse(file.read_text())):
        if isinstance(node, ast.Import):
            names |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and node.module:
            names |= {node.module} | {f"{node.module}.{alias.name}" for alias in node.names}
    return names & known.keys()


def package_of(file: Path, foundations: set[Path]) -> str:
    """The box that a file belongs to: a folder below keras_vit/, or a top-level folder."""
    folder = file.relative_to(ROOT).parts[:-1]
    if folder == ("keras_vit",):
        return FOUNDATIONS if file in foundations else "keras_vit"
    return "/".join(folder[:2]) if folder[0] == "keras_vit" else folder[0]


def graph() -> dict[str, set[str]]:
    """Each package with the packages that it imports, ways over others left out."""
    known = modules()
    direct = {file: {known[name] for name in imports(file, known)} for file in known.values()}
    core = ROOT / "keras_vit"
    foundations = {
        file for file in direct if file.parent == core and all(other.parent == core for other in direct[file])
    }
    edges = {package_of(file, foundations): set() for file in direct}
    for file, others in direct.items():
        edges[package_of(file, foundations)] |= {package_of(other, foundations) for other in others}
    edges = {package: others - {package} for package, others in edges.items()}
    reach = {package: set().union(*(_reached(other, edges) for other in others)) for package, others in edges.items()}
    return {package: edges[package] - reach[package] for package in edges}


def _reached(package, edges):
    """All that a package imports over any number of others."""
    return edges[package].union(*(_reached(other, edges) for other in edges[package]))


def rows(edges: dict[str, set[str]]) -> list[list[str]]:
    """Packages by the longest way from one that nobody imports."""
    depth = dict.fromkeys(edges, 0)
    for _ in edges:
        for package, others in edges.items():
            for other in others:
                depth[other] = max(depth[other], depth[package] + 1)
    return [sorted(name for name in edges if depth[name] == row) for row in range(max(depth.values()) + 1)]


def contents(package: str) -> str:
    """What a box says: the folders and files within."""
    folder = ROOT / package.removesuffix("/*.py")
    below = sorted(f"{path.parent.name}/" for path in folder.glob("*/__init__.py"))
    if package in ("recipes", "export", "cli"):
        return f"installed as {TOPS[package]}" + (f"; {' '.join(below)}" if below else "")
    first = ast.get_docstring(ast.parse((folder / "__init__.py").read_text())).partition("\n")[0]
    return "pixels, preprocessing, table of sizes" if package == FOUNDATIONS else first


def draw(edges: dict[str, set[str]]) -> str:
    """The image as SVG."""
    levels = rows(edges)
    width = max(len(level) for level in levels) * (WIDTH + GAP_X) + GAP_X
    height = len(levels) * (HEIGHT + GAP_Y) - GAP_Y + 2 * GAP_X
    places = {}
    for row, level in enumerate(levels):
        left = (width - len(level) * (WIDTH + GAP_X) + GAP_X) / 2
        for column, package in enumerate(level):
            places[package] = (left + column * (WIDTH + GAP_X), GAP_X + row * (HEIGHT + GAP_Y))
    lines = [_arrow(places[a], places[b]) for a in sorted(edges) for b in sorted(edges[a])]
    boxes = [_box(package, *place) for package, place in sorted(places.items())]
    head = (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" font-family="sans-serif">\n'
        '<marker id="tip" viewBox="0 0 10 10" refX="9" refY="5" markerWidth="8" markerHeight="8" orient="auto">'
        '<path d="M0 0 10 5 0 10z" fill="#666"/></marker>\n'
        f'<rect width="{width}" height="{height}" fill="#fff"/>\n'
    )
    return head + "\n".join(lines + boxes) + "\n</svg>\n"


def _arrow(start, end):
    x1, y1, x2, y2 = start[0] + WIDTH / 2, start[1] + HEIGHT, end[0] + WIDTH / 2, end[1]
    return f'<path d="M{x1:g} {y1:g} {x2:g} {y2:g}" stroke="#666" stroke-width="1.5" marker-end="url(#tip)"/>'


def _box(package, x, y):
    words, lines = contents(package).split(), [""]
    for word in words:
        if len(lines[-1]) + len(word) > 40:
            lines.append("")
        lines[-1] = f"{lines[-1]} {word}".strip()
    text = "".join(
        f'<text x="{x + 12:g}" y="{y + 42 + 17 * i:g}" font-size="13" fill="#333">{escape(line)}</text>'
        for i, line in enumerate(lines[:3])
    )
    return (
        f'<rect x="{x:g}" y="{y:g}" width="{WIDTH}" height="{HEIGHT}" rx="8" fill="#eef3fb" stroke="#4a6fa5"/>'
        f'<text x="{x + 12:g}" y="{y + 22:g}" font-size="15" font-weight="bold">{escape(package)}</text>{text}'
    )


if __name__ == "__main__":
    IMAGE.write_text(draw(graph()))
