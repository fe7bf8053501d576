"""The site that `make docs` builds: no broken links, every public name documented, nothing loaded from other hosts."""

import importlib
import inspect
import re
import shutil
import subprocess
import sys

import pytest
from blocks import ROOT

pytestmark = pytest.mark.extended

REFERENCE = ("keras_vit", "layers", "weights", "inspect", "export", "recipes")
BROKEN_LINKS = """---
orphan: true
---
# A heading

[good](#a-heading) [bad](#not-on-this-page) [good](index.md) [bad](nowhere.md) [bad](index.md#not-on-that-page)
"""
# What a browser loads by itself: attributes, style sheets and icons, addresses in styles and scripts.
LOADED = [
    r"""<[^>]+\s(?:src|srcset|poster|data|action|background)=["']?\s*(?:\w+:)?//[^"'\s>]+""",
    r"""<link(?=[^>]*\srel=["']?[^"'>]*(?:stylesheet|icon|preload|preconnect))[^>]*\shref=["']?(?:\w+:)?//[^"'\s>]+""",
]
LOADED_BY_CODE = r"""(?:url\(\s*|@import\s*|["'`])["']?(?:https?:)?//(?!www\.w3\.org/)[\w.-]+[^"'`)\s]*"""


@pytest.fixture(scope="module")
def build(tmp_path_factory):
    """The site's folder, the exit status of Sphinx and its warnings."""
    folder = tmp_path_factory.mktemp("docs")
    source, site = folder / "docs", folder / "site"
    shutil.copytree(ROOT / "docs", source)
    (source / "broken.md").write_text(BROKEN_LINKS)
    command = [sys.executable, "-m", "sphinx", "-EW", "--keep-going", "-q", "-d", folder / "doctrees", source, site]
    done = subprocess.run(command, capture_output=True, text=True)
    lines = [line for line in done.stderr.splitlines() if "before absl::InitializeLog" not in line]
    return site, done.returncode, [line for line in lines if re.search(r"WARNING|ERROR", line)]


def test_only_broken_links_fail_the_build(build):
    site, status, warnings = build
    targets = ["not-on-this-page", "nowhere.md", "not-on-that-page"]
    assert status and len(warnings) == len(targets), warnings
    assert all("broken.md" in line and any(target in line for target in targets) for line in warnings), warnings
    pages = {str(page.relative_to(ROOT / "docs").with_suffix("")) for page in (ROOT / "docs").rglob("*.md")}
    linked = set(re.findall(r'href="([^"#]+)\.html', (site / "index.html").read_text()))
    assert pages - {"index"} <= linked


@pytest.mark.parametrize("name", REFERENCE)
def test_every_public_name_is_documented_with_its_signature(name, build):
    page = (build[0] / "api" / f"{name}.html").read_text()
    module = importlib.import_module(name if name == "keras_vit" else f"keras_vit.{name}")
    public = {key: getattr(module, key) for key in dir(module) if not key.startswith("_")}
    documented = [key for key, value in public.items() if inspect.isfunction(value) or inspect.isclass(value)]
    assert documented
    for key in documented:
        # Documented as a name of the package or of the module that defines it.
        place = rf"{re.escape(module.__name__)}(?:\.\w+)*\.{key}"
        entry = re.search(rf'id="{place}">(.*?)</dt>\s*<dd>(.*?)</dd>', page, re.DOTALL)
        assert entry and "sig-paren" in entry[1], key
        parameters = re.findall(r'class="sig-param">(.*?)</em>', entry[1], re.DOTALL)
        assert ["*args", "**kwargs"] != [re.sub("<.*?>", "", parameter) for parameter in parameters], key
        assert len(re.sub("<.*?>", "", entry[2])) > 10, key


def test_every_name_of_the_public_api_is_documented(build):
    pages = "\n".join(page.read_text() for page in (build[0] / "api").glob("*.html"))
    documented = set(re.findall(r'id="(keras_vit[\w.]*)"', pages))
    module, missing = "", []
    for line in (ROOT / "tests" / "public_api.txt").read_text().splitlines():
        name = re.match(r" {2}(\w+)", line)
        module = module if line.startswith(" ") else line
        # Documented here, or where it is defined or imported from by users.
        places = {f"{place}.{name[1]}" for place in (module, "keras_vit", "keras_vit.recipes.recipe") if name}
        missing += [f"{module}.{name[1]}"] if name and not places & documented else []
    assert documented and not missing


def loaded(page):
    code = re.findall(r"<(?:style|script)\b[^>]*>(.*?)</", page, re.DOTALL) if "<html" in page else [page]
    code = re.sub(r"/\*.*?\*/|(?<![:'\"])//[^\n]*", "", "\n".join(code), flags=re.DOTALL)  # without comments
    elements = [found for pattern in LOADED for found in re.findall(pattern, page)] if "<html" in page else []
    return elements + re.findall(LOADED_BY_CODE, code)


def test_nothing_is_loaded_from_other_hosts(build):
    bad = ['<img src="//x.y/z">', '<link rel="stylesheet" href="https://x.y/z">', '<style>a{b:url("http://x")}</style>']
    assert [len(loaded(f"<html>{element}")) for element in [*bad, '<a href="https://x.y">']] == [1, 1, 1, 0]
    files = [file for end in ("html", "css", "js") for file in build[0].rglob(f"*.{end}")]
    assert len(files) > 30 and not [(file.name, found) for file in files if (found := loaded(file.read_text()))]
