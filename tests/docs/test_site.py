"""The site that `make docs` builds: no broken links, every public name documented, nothing loaded from other hosts."""

import importlib
import inspect
import re
import shutil
import subprocess
import sys
from html.parser import HTMLParser

import pytest
from blocks import ROOT

pytestmark = pytest.mark.slow

REFERENCE = ("keras_vit", "layers", "weights", "inspect", "export", "recipes")
# Attributes that a browser loads by itself. Links that a reader clicks may go anywhere.
LOADED = {"src", "srcset", "poster", "data", "action", "background"}
BROKEN_LINKS = """---
orphan: true
---
# Broken

## A heading

[good](#a-heading) [bad](#not-on-this-page) [good](index.md) [bad](nowhere.md) [bad](index.md#not-on-that-page)
"""


@pytest.fixture(scope="module")
def build(tmp_path_factory):
    """One strict build of docs/ and a page with broken links: the folder of the site, exit status, warnings."""
    folder = tmp_path_factory.mktemp("docs")
    source, site = folder / "docs", folder / "site"
    shutil.copytree(ROOT / "docs", source)
    (source / "broken.md").write_text(BROKEN_LINKS)
    command = [sys.executable, "-m", "sphinx", "-EW", "--keep-going", "-q", "-d", folder / "doctrees", source, site]
    done = subprocess.run(command, capture_output=True, text=True)
    lines = [line for line in done.stderr.splitlines() if "before absl::InitializeLog" not in line]
    warnings = [line for line in lines if re.search(r"WARNING|ERROR", line)]
    return site, done.returncode, warnings


@pytest.fixture(scope="module")
def site(build):
    return build[0]


def test_only_broken_links_fail_the_build(build):
    _, status, warnings = build
    assert status
    targets = ["not-on-this-page", "nowhere.md", "not-on-that-page"]
    assert len(warnings) == len(targets), warnings
    assert all("broken.md" in line for line in warnings), warnings
    assert all(any(target in line for line in warnings) for target in targets), warnings


def test_every_page_is_linked_from_the_index(site):
    pages = {str(page.relative_to(ROOT / "docs").with_suffix("")) for page in (ROOT / "docs").rglob("*.md")}
    linked = set(re.findall(r'href="([^"#]+)\.html', (site / "index.html").read_text()))
    assert pages - {"index"} <= linked


@pytest.mark.parametrize("name", REFERENCE)
def test_every_public_name_is_documented_with_its_signature(name, site):
    page = (site / "api" / f"{name}.html").read_text()
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


def test_every_name_of_the_public_api_is_documented(site):
    pages = "\n".join(page.read_text() for page in (site / "api").glob("*.html"))
    documented = set(re.findall(r'id="(keras_vit[\w.]*)"', pages))
    module, missing = "", []
    for line in (ROOT / "tests" / "public_api.txt").read_text().splitlines():
        name = re.match(r" {2}(\w+)", line)
        module = module if line.startswith(" ") else line
        if name and f"{module}.{name[1]}" not in documented:
            # Documented where it is defined, or where users import it from.
            elsewhere = {f"{other}.{name[1]}" for other in ("keras_vit", "keras_vit.recipes.recipe")}
            missing += [] if elsewhere & documented else [f"{module}.{name[1]}"]
    assert not missing


def test_recipe_modules_that_the_pages_import_are_documented(site):
    page = (site / "api" / "recipes.html").read_text()
    texts = [(ROOT / "README.md").read_text(), *(file.read_text() for file in (ROOT / "docs").glob("*.md"))]
    imported = set(re.findall(r"from (keras_vit\.recipes[\w.]*) import", "\n".join(texts)))
    imported -= {"keras_vit.recipes.configs." + file.stem for file in (ROOT / "recipes" / "configs").glob("*.py")}
    assert imported and all(f'id="module-{name}"' in page for name in imported), imported


@pytest.mark.parametrize("name", ["README.md", "CONTRIBUTING.md"])
def test_links_outside_the_site_lead_to_files(name):
    links = re.findall(r"\]\(([^)#:]+)\)", (ROOT / name).read_text())
    assert all((ROOT / link).is_file() for link in links), links


class Resources(HTMLParser):
    """Addresses that a page makes a browser load, and its styles and scripts."""

    def __init__(self):
        super().__init__()
        self.addresses, self.code, self._inside = [], [], False

    def handle_starttag(self, tag, attributes):
        values = dict(attributes)
        self._inside = tag in ("style", "script")
        loaded = [value for key, value in attributes if key in LOADED]
        # A canonical or "next" page is not loaded.
        if tag == "link" and set(values.get("rel", "").split()) & {"stylesheet", "icon", "preload", "preconnect"}:
            loaded.append(values.get("href"))
        self.addresses += [address for address in loaded if address]
        self.code.append(values.get("style") or "")

    def handle_data(self, data):
        if self._inside:
            self.code.append(data)

    def handle_endtag(self, tag):
        self._inside = False


def test_nothing_is_loaded_from_other_hosts(site):
    foreign = re.compile(r"\s*(?:\w+:)?//")
    for file in site.rglob("*.html"):
        found = Resources()
        found.feed(file.read_text())
        assert found.addresses
        assert not [address for address in found.addresses if foreign.match(address)], file
        assert not _loaded_by_code("\n".join(found.code)), file
    for file in [*site.rglob("*.css"), *site.rglob("*.js")]:
        assert not _loaded_by_code(file.read_text()), file


def _loaded_by_code(code):
    """Full addresses in a style sheet or script, except XML namespaces and comments."""
    code = re.sub(r"/\*.*?\*/|(?<![:'\"])//[^\n]*", "", code, flags=re.DOTALL)
    addresses = re.findall(r"""(?:url\(\s*|@import\s*|["'`])["']?((?:https?:)?//[\w.-]+[^"'`)\s]*)""", code)
    return [address for address in addresses if not address.startswith("http://www.w3.org/")]
