"""A folder of images, and `keras-vit inspect` on it."""

import json
import re
from html.parser import HTMLParser

import numpy as np
import pytest
from PIL import Image
from scenes import scene


class Report(HTMLParser):
    """Texts by tag, sources of images, and the data of a report."""

    def __init__(self, path):
        super().__init__()
        self.tag, self.sources, self.texts = "", [], {}
        self.text = path.read_text()
        self.feed(self.text.replace("<wbr>", ""))
        self.data = json.loads(re.search(r'id="data">(.*?)</script>', self.text, re.DOTALL)[1])
        self.headings, self.captions, self.paragraphs = (self.texts[tag] for tag in ("h2", "figcaption", "p"))

    def handle_starttag(self, tag, attributes):
        self.tag = tag
        self.sources += [value for name, value in attributes if name == "src"]

    def handle_data(self, data):
        if data.strip():
            self.texts.setdefault(self.tag, []).append(data)


@pytest.fixture
def folder(tmp_path):
    folder = tmp_path / "images"
    for i in range(9):
        file = folder / f"class {i % 2}" / f"{i}.{'jpg' if i % 2 else 'png'}"
        file.parent.mkdir(parents=True, exist_ok=True)
        scene(i, (30, 20 + i)).save(file)
    (folder / "notes.txt").write_text("no image")
    Image.fromarray(np.arange(256, dtype="uint8").reshape(16, 16)).save(folder / "gray.png")
    return folder


@pytest.fixture
def run(run_cli, folder, tmp_path):
    """Runs `inspect` on a model or a path; returns exit status, `Report`, output and errors."""

    def run_command(model, *options, images=folder, output=tmp_path / "out" / "report.html"):
        if not isinstance(model, (str, type(tmp_path))):
            model.save(tmp_path / "x.keras")
            model = tmp_path / "x.keras"
        status, *texts = run_cli("inspect", model, "--images", images, "--output", output, *options)
        return status, Report(output) if not status else None, *texts

    return run_command
