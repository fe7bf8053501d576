"""Sphinx configuration: the pages of this folder, and an API reference from the docstrings, in build/site/."""

import inspect
import re
from importlib.metadata import version as version_of

from sphinx.util.inspect import stringify_signature

project = "keras_vit"
author = "The keras_vit authors"
copyright = "The keras_vit authors"
version = release = version_of("vit-for-keras")

extensions = ["myst_nb", "sphinx.ext.autodoc", "sphinx.ext.napoleon", "sphinx_copybutton"]
highlight_language = "sh"  # indented blocks are commands

# Creates the targets of links to headings, "page.md#heading", so that broken ones are errors.
myst_heading_anchors = 4

# Notebooks are shown with their stored outputs; tests/docs/test_notebooks.py executes them.
nb_execution_mode = "off"

# Names of Keras and TensorFlow in single backticks become code without a link.
default_role = "py:obj"
napoleon_use_param = False  # keeps "mean, std:" one entry
autodoc_member_order = "bysource"
autodoc_inherit_docstrings = False
python_use_unqualified_type_names = True
python_maximum_signature_line_length = 100

html_theme = "furo"
html_title = f"keras_vit {version}"
html_show_sourcelink = False
html_use_index = False  # the search finds every name
html_copy_source = False
html_static_path = ["_static"]
html_css_files = ["tables.css"]


def use_signature_of_init(app, what, name, thing, options, signature, returned):
    """Sphinx reads the signature of `__new__` first, which is (*args, **kwargs) for Keras layers."""
    if what != "class" or thing.__init__ is object.__init__:
        return None
    constructor = inspect.signature(thing.__init__)
    without_self = constructor.replace(parameters=list(constructor.parameters.values())[1:])
    return stringify_signature(without_self), returned


def join_hanging_lines(app, what, name, thing, options, lines):
    """Removes the indentation of paragraphs such as "Input: (B, N, D), ...", which Sphinx would read as a list."""
    hanging = False
    for i, line in enumerate(lines):
        if re.match(r"[A-Z][\w ]*: \S", line):
            hanging = True
        elif not line.startswith("  "):
            hanging = False
        elif hanging:
            lines[i] = line.strip()


def setup(app):
    app.connect("autodoc-process-signature", use_signature_of_init)
    app.connect("autodoc-process-docstring", join_hanging_lines, priority=400)  # before napoleon
