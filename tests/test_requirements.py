"""constraints-oldest.txt, with which `make test-oldest` installs, against the lower bounds of setup.cfg."""

import configparser
from pathlib import Path

from packaging.requirements import Requirement
from packaging.utils import canonicalize_name
from packaging.version import Version

ROOT = Path(__file__).parents[1]
# tensorflow-tpu requires a TPU VM, the others do not change what the tests compute.
NOT_TESTED = {"tensorflow-tpu", "sphinx", "myst-nb", "myst-parser", "furo", "sphinx-copybutton", "pytest-xdist"}
TOOLS = {"mypy", "pre-commit", "pytest-cov", "ruff", "typos"}


def lower_bounds():
    """{name: lowest version that setup.cfg allows}, without keras_vit itself."""
    config = configparser.ConfigParser()
    config.read(ROOT / "setup.cfg")
    texts = [config["options"]["install_requires"], *config["options.extras_require"].values()]
    found = {}
    for line in "\n".join(texts).splitlines():
        text = line.split("#")[0].strip()
        if not text or text.startswith("keras_vit["):
            continue
        requirement = Requirement(text)
        if requirement.name == "libtpu" and "<=" in text:  # of [tpu]: another release than preflight's
            continue
        (bound,) = [s.version for s in requirement.specifier if s.operator == ">="]
        found.setdefault(canonicalize_name(requirement.name), set()).add(bound)
    return found


def test_the_oldest_versions_are_the_lower_bounds():
    lines = [line for line in (ROOT / "constraints-oldest.txt").read_text().splitlines() if not line.startswith("#")]
    oldest = dict(line.split("==") for line in lines)
    bounds = {name: found for name, found in lower_bounds().items() if name not in NOT_TESTED | TOOLS}
    assert {canonicalize_name(name) for name in oldest} == set(bounds)
    for name, version in oldest.items():
        assert {Version(bound) for bound in bounds[canonicalize_name(name)]} == {Version(version)}, name
