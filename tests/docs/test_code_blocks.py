"""Every code block of README.md, CONTRIBUTING.md and docs/ works.

Python blocks run, one page from top to bottom. Shell blocks are checked by bash; their `keras-vit` commands are parsed
by the real parser and stop where the work would begin, or run if `<!-- test: run -->` precedes the block.
`<!-- test: skip: reason -->` skips a block.
"""

import configparser
import re
import subprocess

import pytest
from blocks import PAGES, ROOT, blocks_of, commands_of
from toys import free_memory, prepare, previous_run, save_weights

from keras_vit_cli import main as main_module
from keras_vit_cli.main import main
from keras_vit_cli.preflight import Preflight
from keras_vit_cli.sweep import Sweep
from keras_vit_cli.train import Train

BLOCKS = [block for page in PAGES for block in blocks_of(page)]
TESTED = [block for block in BLOCKS if not block.mark.startswith("skip")]
SHELL = [block for block in TESTED if block.language in ("sh", "bash")]
PYTHON = [block for block in TESTED if block.language == "python"]


def test_no_block_is_skipped_and_only_mobile_code_is_untested():
    skipped = {(block.page, block.mark) for block in BLOCKS if block.mark.startswith("skip")}
    untested = [
        (block.page, block.language) for block in BLOCKS if block.language not in ("sh", "bash", "python", "text")
    ]
    assert skipped == set()
    # No Android or iOS toolchain here; the pages state what was compiled. Chromium runs the JavaScript, see
    # tests/export/web/test_page_in_browser.py.
    assert untested == [
        *[("docs/mobile.md", language) for language in ("kotlin", "kotlin", "swift")],
        *[("docs/tflite.md", language) for language in ("js", "cpp")],
    ]


def test_every_result_has_its_command():
    _, *sections = (ROOT / "docs" / "results.md").read_text().split("\n## ")
    assert sections
    for text in sections:
        assert re.search(r"^    .*(python benchmarks/\w+\.py|keras-vit )", text, re.MULTILINE), text.partition("\n")[0]


@pytest.fixture(scope="module")
def weights(tmp_path_factory):
    folder = tmp_path_factory.mktemp("weights")
    save_weights(folder)
    return folder


@pytest.mark.slow
@pytest.mark.parametrize("page", sorted({block.page for block in PYTHON}))
def test_python_runs(page, tmp_path, weights, data_dir, monkeypatch):
    names = prepare(tmp_path, weights, data_dir, monkeypatch)
    for block in PYTHON:
        if block.page == page:
            # Empty lines before the text, so that a traceback shows the line number of the page.
            text = "\n" * (block.line - 1) + block.text
            exec(compile(text, str(ROOT / page), "exec"), names)
    free_memory()


@pytest.mark.slow
@pytest.mark.parametrize("block", SHELL, ids=str)
def test_shell_block_is_valid(block, tmp_path, weights, data_dir, monkeypatch):
    done = subprocess.run(["bash", "-n"], input=block.text, text=True, capture_output=True)
    assert not done.returncode, done.stderr
    if block.mark == "run":
        prepare(tmp_path, weights, data_dir, monkeypatch)
    else:
        previous_run(tmp_path, monkeypatch)
        _stop_where_work_begins(monkeypatch)
    for program, *words in commands_of(block.text):
        if program == "keras-vit":
            _check_keras_vit(words)
        elif program == "make":
            targets = re.findall(r"^([a-z-]+):", (ROOT / "Makefile").read_text(), re.MULTILINE)
            assert set(words) <= set(targets)
        elif program == "pip":
            _check_extras(words)
        elif program.startswith("python") and words[0].endswith(".py"):
            _check_script(words)
        elif block.mark == "run":
            pytest.fail(f"Only keras-vit commands can run in a test. Received: {program}")


class WorkBegins(Exception):
    """The command line is valid; its work would begin now."""


def _work_begins(*args, **kwargs):
    raise WorkBegins


def _stop_where_work_begins(monkeypatch):
    parse = main_module._parse
    # `train`, `sweep` and `preflight` read the fields of the recipe after that.
    own_parsers = (Train, Sweep, Preflight)
    monkeypatch.setattr(
        main_module, "_parse", lambda words: found if isinstance(found := parse(words), own_parsers) else _work_begins()
    )
    for check in ("check_dataset_path", "check_new_run", "check_weights"):  # of files that the reader has
        monkeypatch.setattr(f"keras_vit_cli.start_checks.{check}", lambda path: None)
    for work in ("run_recipe.run", "learning_rate_sweep.sweep", "preflight.preflight"):
        monkeypatch.setattr(f"keras_vit.recipes.{work}", _work_begins)
    monkeypatch.setattr("keras_vit_cli.preflight_npu.PreflightNpu.run", _work_begins)


def _check_keras_vit(words):
    try:
        assert main(words) == 0, words
    except WorkBegins:
        pass
    except SystemExit as end:  # --help
        assert not end.code, words


def _check_extras(words):
    config = configparser.ConfigParser()
    config.read(ROOT / "setup.cfg")
    groups = re.findall(r"(?:keras_vit|\.)\[([\w,]+)\]", " ".join(words))
    assert {extra for group in groups for extra in group.split(",")} <= set(config["options.extras_require"])


def _check_script(words):
    source = (ROOT / words[0]).read_text()
    options = [word[2:].replace("-", "_") for word in words[1:] if word.startswith("--")]
    assert all(re.search(rf"\b{option}\b", source) for option in options), words
