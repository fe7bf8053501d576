"""The site that `make docs` builds: nothing broken, every public name explained, nothing fetched from elsewhere."""

import importlib
import inspect
import re
import shutil
import subprocess
import sys
from html.parser import HTMLParser

import pytest
from blocks import ROOT

REFERENCE = ("keras_vit", "layers", "weights", "inspect", "export", "recipes")
# What a browser fetches by itself; links that a reader clicks may lead anywhere.
FETCHED = {"src", "srcset", "poster", "data", "action", "background"}


def build(source, target):
    command = [sys.executable, "-m", "sphinx", "-EW", "--keep-going", "-q", "-d", target / "doctrees", source, target]
    return subprocess.run(command, capture_output=True, text=True)


@pytest.fixture(scope="module")
def site(tmp_path_factory):
    target = tmp_path_factory.mktemp("site")
    done = build(ROOT / "docs", target)
    assert not done.returncode, done.stderr
    shutil.rmtree(target / "doctrees")
    return target


def test_broken_links_fail_the_build(tmp_path):
    shutil.copy(ROOT / "docs" / "conf.py", tmp_path)
    (tmp_path / "page.md").write_text("# A page\n\n## A heading\n\n[good](#a-heading) [bad](#of-this-page)\n")
    links = "[good](page.md#a-heading) [bad](nowhere.md) [bad](page.md#of-another-page)"
    (tmp_path / "index.md").write_text(f"# Index\n\n{links}\n\n```{{toctree}}\npage\n```\n")
    done = build(tmp_path, tmp_path / "site")
    assert done.returncode
    assert all(name in done.stderr for name in ("nowhere.md", "of-this-page", "of-another-page"))
    assert "a-heading" not in done.stderr


def test_every_page_can_be_reached(site):
    pages = {str(page.relative_to(ROOT / "docs").with_suffix("")) for page in (ROOT / "docs").rglob("*.md")}
    linked = set(re.findall(r'href="([^"#]+)\.html', (site / "index.html").read_text()))
    assert pages - {"index"} <= linked


@pytest.mark.parametrize("name", REFERENCE)
def test_every_public_name_is_explained_with_its_signature(name, site):
    page = (site / "api" / f"{name}.html").read_text()
    module = importlib.import_module(name if name == "keras_vit" else f"keras_vit.{name}")
    public = {key: getattr(module, key) for key in dir(module) if not key.startswith("_")}
    explained = [key for key, thing in public.items() if inspect.isfunction(thing) or inspect.isclass(thing)]
    assert explained or name == "recipes"
    for key in explained:
        entry = re.search(rf'id="{re.escape(module.__name__)}\.{key}">(.*?)</dt>\s*<dd>(.*?)</dd>', page, re.DOTALL)
        assert entry and "sig-paren" in entry[1], key
        parameters = re.findall(r'class="sig-param">(.*?)</em>', entry[1], re.DOTALL)
        assert ["*args", "**kwargs"] != [re.sub("<.*?>", "", parameter) for parameter in parameters], key
        assert len(re.sub("<.*?>", "", entry[2])) > 10, key


def test_every_name_of_the_public_api_is_explained(site):
    pages = "\n".join(page.read_text() for page in (site / "api").glob("*.html"))
    explained = set(re.findall(r'id="(keras_vit[\w.]*)"', pages))
    module, missing = "", []
    for line in (ROOT / "tests" / "public_api.txt").read_text().splitlines():
        name = re.match(r" {2}(\w+)", line)
        module = module if line.startswith(" ") else line
        if name and f"{module}.{name[1]}" not in explained:
            # Explained where it is defined, or where people import it from.
            elsewhere = {f"{other}.{name[1]}" for other in ("keras_vit", "keras_vit.recipes.recipe")}
            missing += [] if elsewhere & explained else [f"{module}.{name[1]}"]
    assert not missing


def test_recipes_that_the_pages_import_are_explained(site):
    page = (site / "api" / "recipes.html").read_text()
    texts = [(ROOT / "README.md").read_text(), *(file.read_text() for file in (ROOT / "docs").glob("*.md"))]
    imported = set(re.findall(r"from keras_vit\.recipes\.(\w+) import", "\n".join(texts))) - {"configs"}
    assert imported and all(f'id="module-keras_vit.recipes.{name}"' in page for name in imported)


@pytest.mark.parametrize("name", ["README.md", "CONTRIBUTING.md"])
def test_links_outside_the_site_lead_to_files(name):
    links = re.findall(r"\]\(([^)#:]+)\)", (ROOT / name).read_text())
    assert all((ROOT / link).is_file() for link in links), links


class Resources(HTMLParser):
    """Addresses that a page makes a browser fetch, and its styles and scripts."""

    def __init__(self):
        super().__init__()
        self.addresses, self.code, self._inside = [], [], False

    def handle_starttag(self, tag, attributes):
        values = dict(attributes)
        self._inside = tag in ("style", "script")
        fetched = [value for key, value in attributes if key in FETCHED]
        # A canonical or "next" page is not fetched.
        if tag == "link" and set(values.get("rel", "").split()) & {"stylesheet", "icon", "preload", "preconnect"}:
            fetched.append(values.get("href"))
        self.addresses += [address for address in fetched if address]
        self.code.append(values.get("style") or "")

    def handle_data(self, data):
        if self._inside:
            self.code.append(data)

    def handle_endtag(self, tag):
        self._inside = False


def test_nothing_comes_from_another_host(site):
    foreign = re.compile(r"\s*(?:\w+:)?//")
    for file in site.rglob("*.html"):
        found = Resources()
        found.feed(file.read_text())
        assert found.addresses
        assert not [address for address in found.addresses if foreign.match(address)], file
        assert not _fetched_by_code("\n".join(found.code)), file
    for file in [*site.rglob("*.css"), *site.rglob("*.js")]:
        assert not _fetched_by_code(file.read_text()), file


def _fetched_by_code(code):
    """Of a style sheet or a script: whole addresses that are not names of formats, and not in comments."""
    code = re.sub(r"/\*.*?\*/|(?<![:'\"])//[^\n]*", "", code, flags=re.DOTALL)
    addresses = re.findall(r"""(?:url\(\s*|@import\s*|["'`])["']?((?:https?:)?//[\w.-]+[^"'`)\s]*)""", code)
    return [address for address in addresses if not address.startswith("http://www.w3.org/")]
