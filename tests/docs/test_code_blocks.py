"""Every code block of README.md and docs/ does what the page says.

Python runs, a page from top to bottom. Commands of `keras-vit` are read by its real parser, up to where the work would
begin, or run if `<!-- test: run -->` stands before the block. `<!-- test: skip: why -->` leaves a block out.
"""

import configparser
import re
import subprocess

import pytest
import tyro
from blocks import PAGES, ROOT, blocks_of, commands_of
from toys import forget, former_run, prepare, save_weights

from keras_vit.cli.main import main

BLOCKS = [block for page in PAGES for block in blocks_of(page)]
SHELL = [block for block in BLOCKS if block.language in ("sh", "bash") and not block.mark.startswith("skip")]
PYTHON = [block for block in BLOCKS if block.language == "python" and not block.mark.startswith("skip")]
TRIED = {"sh", "bash", "python", "text"}


def test_what_is_not_tried_is_counted():
    """Who adds to these has looked for another way first."""
    skipped = {(block.page, block.mark) for block in BLOCKS if block.mark.startswith("skip")}
    foreign = [(block.page, block.language) for block in BLOCKS if block.language not in TRIED]
    assert skipped == set()
    # For phones, whose packages are not here: the page says what was tried.
    assert foreign == [("docs/mobile.md", "kotlin"), ("docs/mobile.md", "kotlin"), ("docs/mobile.md", "swift")]


def test_every_result_has_its_command():
    _, *sections = (ROOT / "docs" / "results.md").read_text().split("\n## ")
    assert sections and all(re.search(r"^    .*python benchmarks/\w+\.py", text, re.MULTILINE) for text in sections)


@pytest.fixture(scope="module")
def weights(tmp_path_factory):
    folder = tmp_path_factory.mktemp("weights")
    save_weights(folder)
    return folder


@pytest.mark.parametrize("page", sorted({block.page for block in PYTHON}))
def test_python_runs(page, tmp_path, weights, data_dir, monkeypatch):
    names = prepare(tmp_path, weights, data_dir, monkeypatch)
    for block in PYTHON:
        if block.page == page:
            # As many empty lines before it as on the page: a traceback then names the page's line.
            text = "\n" * (block.line - 1) + block.text
            exec(compile(text, str(ROOT / page), "exec"), names)
    forget()


class Reached(Exception):
    """The command was understood; its work would begin."""


def _reached(*args, **kwargs):
    raise Reached


def _names(block):
    return f"{block.page}:{block.line}"


@pytest.mark.parametrize("block", [block for block in SHELL if "keras-vit " in block.text], ids=_names)
def test_commands_are_understood(block, monkeypatch, tmp_path):
    former_run(tmp_path, monkeypatch)
    parse = tyro.extras.subcommand_cli_from_dict
    monkeypatch.setattr("tyro.extras.subcommand_cli_from_dict", lambda *args, **more: _reached(parse(*args, **more)))
    for work in ("results.run", "sweep.sweep", "tpu.preflight"):
        monkeypatch.setattr(f"keras_vit.recipes.{work}", _reached)
    for program, *words in commands_of(block.text):
        if program == "keras-vit":
            try:
                assert main(words) == 0, words
            except Reached:
                pass
            except SystemExit as end:
                assert not end.code, words


@pytest.mark.parametrize("block", [block for block in SHELL if block.mark == "run"], ids=_names)
def test_commands_run(block, tmp_path, weights, data_dir, monkeypatch):
    prepare(tmp_path, weights, data_dir, monkeypatch)
    for program, *words in commands_of(block.text):
        assert program == "keras-vit" and main(words) == 0, words
    forget()


@pytest.mark.parametrize("block", SHELL, ids=_names)
def test_the_shell_accepts_it(block):
    done = subprocess.run(["bash", "-n"], input=block.text, text=True, capture_output=True)
    assert not done.returncode, done.stderr


@pytest.mark.parametrize("block", SHELL, ids=_names)
def test_targets_scripts_and_extras_exist(block):
    config = configparser.ConfigParser()
    config.read(ROOT / "setup.cfg")
    extras = set(config["options.extras_require"])
    targets = set(re.findall(r"^([a-z-]+):", (ROOT / "Makefile").read_text(), re.MULTILINE))
    for program, *words in commands_of(block.text):
        if program == "make":
            assert set(words) <= targets
        if program == "pip":
            asked = re.findall(r"(?:keras_vit|\.)\[([\w,]+)\]", " ".join(words))
            assert {extra for group in asked for extra in group.split(",")} <= extras
        if program.startswith("python") and words[0].endswith(".py"):
            source = (ROOT / words[0]).read_text()
            options = [word[2:].replace("-", "_") for word in words[1:] if word.startswith("--")]
            assert all(re.search(rf"\b{option}\b", source) for option in options), words
