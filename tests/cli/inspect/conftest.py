"""A folder of images, and `keras-vit inspect` on it."""

import json
import re
from html.parser import HTMLParser

import numpy as np
import pytest
from PIL import Image
from scenes import scene

from keras_vit_cli.main import main


class Report(HTMLParser):
    """Headings, captions, table cells, paragraphs and data of a report."""

    def __init__(self, path):
        super().__init__()
        self.tag, self.attributes, self.sources = "", {}, []
        self.titles, self.headings, self.captions, self.cells, self.paragraphs = [], [], [], [], []
        self.text = path.read_text()
        self.feed(self.text.replace("<wbr>", ""))
        self.data = json.loads(re.search(r'id="data">(.*?)</script>', self.text, re.DOTALL)[1])

    def handle_starttag(self, tag, attributes):
        self.tag, self.attributes = tag, dict(attributes)
        if "src" in self.attributes:
            self.sources.append(self.attributes["src"])

    def handle_data(self, data):
        texts = {
            "h1": self.titles,
            "title": self.titles,
            "h2": self.headings,
            "figcaption": self.captions,
            "td": self.cells,
            "p": self.paragraphs,
        }
        if self.tag in texts and data.strip():
            texts[self.tag].append(data)


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
def run(capsys, folder, tmp_path):
    """Runs `inspect` on a model or a path; returns exit status, `Report`, output and errors."""

    def run_command(model, *options, images=folder, output=tmp_path / "out" / "report.html"):
        if not isinstance(model, (str, type(tmp_path))):
            model.save(tmp_path / "x.keras")
            model = tmp_path / "x.keras"
        status = main(["inspect", *map(str, (model, "--images", images, "--output", output, *options))])
        output_text, errors = capsys.readouterr()
        return status, Report(output) if not status else None, output_text, errors

    return run_command
