"""The documentation site: `make docs`. The source is the whole repository, so links work here and there."""

from __future__ import annotations

import importlib
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from docutils import nodes
from sphinx.application import Sphinx
from sphinx.util.docutils import SphinxDirective

project = "tuccl"
copyright = "the tuccl authors"
root_doc = "docs/index"
include_patterns = ["docs/**", "results/*.md", "*.md"]
exclude_patterns = [".*", "build", "dist", "tests", "benchmarks", "msccl_ext", "training", "**/__pycache__"]
extensions = ["myst_parser", "sphinx.ext.autodoc", "sphinx.ext.napoleon"]
html_theme = "furo"
html_title = "tuccl"
html_extra_path = ["site"]
myst_enable_extensions = ["html_image"]
myst_heading_anchors = 3
autodoc_typehints = "signature"
autodoc_member_order = "bysource"
nitpicky = False


def help_pages() -> Iterator[tuple[str, str]]:
    """Yield each verb of the command line and its help."""
    from tuccl.cli.reference import help_pages as pages

    yield from pages()
