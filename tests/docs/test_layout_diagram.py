"""The image of docs/layout.md says what the code says."""

import importlib.util
import xml.etree.ElementTree as ElementTree

import pytest
from blocks import ROOT


@pytest.fixture(scope="module")
def layout():
    spec = importlib.util.spec_from_file_location("layout_image", ROOT / "docs" / "layout_image.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_the_image_is_up_to_date(layout):
    assert layout.IMAGE.read_text() == layout.draw(layout.graph()), "Draw it again: python docs/layout_diagram.py"


def test_the_graph_is_that_of_the_imports(layout):
    graph = layout.graph()
    assert graph["cli"] == {"recipes", "export"}
    assert graph["keras_vit/layers"] == {layout.FOUNDATIONS} and not graph[layout.FOUNDATIONS]
    above = [{"keras_vit/models"}, {"recipes", "export"}]
    assert not any(graph[name] & others for name in ("keras_vit/layers", "keras_vit/weights") for others in above)


def test_ways_over_others_are_left_out(layout):
    assert layout.rows({"a": {"b"}, "b": {"c"}, "c": set()}) == [["a"], ["b"], ["c"]]
    assert layout.rows({"a": {"b", "c"}, "b": set(), "c": set()}) == [["a"], ["b", "c"]]


def test_every_box_stands_in_the_image_with_an_arrow_for_each_import(layout):
    graph = layout.graph()
    root = ElementTree.fromstring(layout.IMAGE.read_text())
    space = "{http://www.w3.org/2000/svg}"
    assert graph.keys() <= {text.text for text in root.iter(f"{space}text")}
    arrows = [path for path in root.iter(f"{space}path") if "marker-end" in path.attrib]
    assert len(arrows) == sum(map(len, graph.values()))
