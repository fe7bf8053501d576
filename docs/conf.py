"""Sphinx: the pages of this folder, and a reference made of the docstrings. `make docs` builds site/."""

from importlib.metadata import version as version_of

project = "keras_vit"
author = "The keras_vit authors"
copyright = "The keras_vit authors"
version = release = version_of("keras_vit")

extensions = ["myst_parser", "sphinx.ext.autodoc", "sphinx.ext.napoleon"]
highlight_language = "sh"  # of indented blocks, which are commands

# Links to headings, "page.md#heading", are checked as links to pages are.
myst_heading_anchors = 4

# Names of Keras and TensorFlow in single backticks are code that links nowhere.
default_role = "py:obj"
napoleon_use_param = False  # "mean, std:" is one entry of two names
autodoc_member_order = "bysource"
autodoc_inherit_docstrings = False
python_use_unqualified_type_names = True
python_maximum_signature_line_length = 100

html_theme = "furo"
html_title = f"keras_vit {version}"
html_show_sourcelink = False
html_copy_source = False
