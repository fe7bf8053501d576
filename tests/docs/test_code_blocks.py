"""Every code block of README.md, CONTRIBUTING.md and docs/ works.

Python blocks run, one page from top to bottom. Shell blocks are checked by bash; their `keras-vit` commands are parsed
by the real parser and stop where the work would begin, or run if `<!-- test: run -->` precedes the block.
`<!-- test: skip: reason -->` skips a block.
"""

import ast
import configparser
import re
import subprocess

import keras
import pytest
from blocks import PAGES, ROOT, blocks_of, commands_of
from toys import free_memory, prepare, previous_run, save_weights

from keras_vit_cli import main as main_module
from keras_vit_cli.commands.preflight import Preflight
from keras_vit_cli.commands.train import Sweep, Train
from keras_vit_cli.main import main

BLOCKS = [block for page in PAGES for block in blocks_of(page)]
TESTED = [block for block in BLOCKS if not block.mark.startswith("skip")]
SHELL = [block for block in TESTED if block.language in ("sh", "bash")]
PYTHON = [block for block in TESTED if block.language == "python"]
SLOW_PAGES = ("docs/npu.md", "docs/preflight.md", "docs/recipes.md", "docs/segment.md")
SLOW_PAGES += ("docs/api/export.md", "docs/api/recipes.md")


def test_no_block_is_skipped_and_only_code_for_phones_and_other_tools_is_untested():
    """Chromium runs the JavaScript: tests/export/web/test_page_in_browser.py. test_kotlin.py compiles the Kotlin.

    The page of other tools says when it was run by hand.
    """
    languages = {(block.page, block.language) for block in BLOCKS if block not in SHELL + PYTHON}
    untested = {("docs/mobile.md", "kotlin"), ("docs/mobile.md", "swift"), ("docs/tflite.md", "js")}
    untested |= {("docs/other_tools.md", "py")}
    assert {found for found in languages if found[1] != "text"} == untested
    assert not [block for block in BLOCKS if block.mark.startswith("skip")]


# Functions return them; their fields are explained where they are documented.
RETURNED = {"Audit", "Benchmark", "Checkpoint", "Chip", "ClassificationReport", "Finding", "LoadReport", "NpuReport"}
RETURNED |= {"Parity", "Report", "Simulation", "StepReport", "VtabResult"}


def test_every_public_name_has_an_example():
    """Functions, classes, and methods and properties that Keras does not have: an import alone is no example."""
    nodes = [node for block in PYTHON for node in ast.walk(ast.parse(block.text))]
    attributes = {node.attr for node in nodes if isinstance(node, ast.Attribute)}
    names = attributes | {node.id for node in nodes if isinstance(node, ast.Name)}
    of_keras = {*dir(keras.Model), *dir(keras.layers.Conv2D)}
    missing, owner = [], ""
    for line in (ROOT / "tests" / "public_api.txt").read_text().splitlines():
        if name := re.match(r"  (\w+)\(", line):
            owner = name[1]
            missing += [owner] if owner not in names | RETURNED else []
        elif (name := re.match(r"    \.(\w+)", line)) and name[1] not in attributes | of_keras:
            missing += [f"{owner}.{name[1]}"]
    assert names and not missing


@pytest.fixture(scope="module")
def weights(tmp_path_factory):
    folder = tmp_path_factory.mktemp("weights")
    save_weights(folder)
    return folder


@pytest.mark.slow
@pytest.mark.parametrize(
    "page",
    [
        pytest.param(page, marks=[pytest.mark.extended] * (page in SLOW_PAGES))
        for page in sorted({block.page for block in PYTHON})
    ],
)
def test_python_runs(page, tmp_path, weights, data_dir, monkeypatch):
    names = prepare(tmp_path, weights, data_dir, monkeypatch)
    for block in PYTHON:
        if block.page == page:
            # Empty lines before the text, so that a traceback shows the line number of the page.
            text = "\n" * (block.line - 1) + block.text
            exec(compile(text, str(ROOT / page), "exec"), names)
    free_memory()


@pytest.mark.slow
@pytest.mark.parametrize(
    "block",
    [
        pytest.param(block, id=str(block), marks=[pytest.mark.extended] * (block.page == "docs/pretrain.md"))
        for block in SHELL
        if block.mark == "run"
    ],
)
def test_shell_block_runs(block, tmp_path, weights, data_dir, monkeypatch):
    prepare(tmp_path, weights, data_dir, monkeypatch)
    check(block)


@pytest.mark.parametrize("page", sorted({block.page for block in SHELL}))
def test_shell_blocks_are_valid(page, tmp_path, monkeypatch):
    previous_run(tmp_path, monkeypatch)
    stop_where_work_begins(monkeypatch)
    blocks = [block for block in SHELL if block.page == page and block.mark != "run"]
    script = "\n".join(f"f{number}() {{\n{block.text}\n}}" for number, block in enumerate(blocks))
    done = subprocess.run(["bash", "-n"], input=script, text=True, capture_output=True)
    assert not done.returncode, done.stderr
    for block in blocks:
        check(block)


def check(block):
    for program, *words in commands_of(block.text):
        if program == "keras-vit":
            check_keras_vit(words, block)
        elif program == "make":
            targets = re.findall(r"^([a-z-]+):", (ROOT / "Makefile").read_text(), re.MULTILINE)
            assert set(words) <= set(targets), block
        elif program == "pip":
            check_extras(words)
        elif program.startswith("python") and words[0].endswith(".py"):
            source = (ROOT / words[0]).read_text()
            options = [word[2:].replace("-", "_") for word in words[1:] if word.startswith("--")]
            assert all(re.search(rf"\b{option}\b", source) for option in options), (block, words)
        else:
            assert block.mark != "run", f"Only keras-vit commands can run in a test. Received: {program}"


class WorkBegins(Exception):
    """The command line is valid; its work would begin now."""


def work_begins(*args, **kwargs):
    raise WorkBegins


def stop_where_work_begins(monkeypatch):
    parse = main_module._parse
    # `train`, `sweep` and `preflight` read the fields of the recipe after that.
    own_parsers = (Train, Sweep, Preflight)
    monkeypatch.setattr(
        main_module, "_parse", lambda words: found if isinstance(found := parse(words), own_parsers) else work_begins()
    )
    for name in ("check_dataset", "check_new_run", "check_weights"):  # of files that the reader has
        monkeypatch.setattr(f"keras_vit_cli.recipe_options.{name}", lambda path: None)
    for work in ("keras_vit.recipes.run_recipe.run", "keras_vit.recipes.runs.learning_rate_sweep.sweep"):
        monkeypatch.setattr(work, work_begins)
    monkeypatch.setattr("keras_vit.recipes.preflight.preflight", work_begins)
    monkeypatch.setattr("keras_vit_cli.commands.preflight.PreflightNpu.run", work_begins)


def check_keras_vit(words, block):
    try:
        assert main(words) == 0, (block, words)
    except WorkBegins:
        pass
    except SystemExit as end:  # --help
        assert not end.code, (block, words)


def check_extras(words):
    config = configparser.ConfigParser()
    config.read(ROOT / "setup.cfg")
    groups = re.findall(r"(?:vit-for-keras|\.)\[([\w,]+)\]", " ".join(words))
    assert {extra for group in groups for extra in group.split(",")} <= set(config["options.extras_require"])
