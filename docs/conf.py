"""The documentation site, built by `make docs`.

The source folder is the whole repository, so that a link between pages works there and here alike.
"""

from __future__ import annotations

import os

from sphinx.application import Sphinx

from tuccl.cli.parser import verb_parsers

project = "tuccl"
project_copyright = "the tuccl authors"
root_doc = "docs/index"
include_patterns = ["docs/**", "results/*.md", "*.md"]
exclude_patterns = [
    ".*",
    "build",
    "dist",
    "tests",
    "benchmarks",
    "msccl_ext",
    "training",
    "docs/site",
]
extensions = ["myst_parser", "sphinx.ext.autodoc", "sphinx.ext.napoleon"]
html_theme = "furo"
html_title = "tuccl"
html_extra_path = ["site"]
myst_enable_extensions = ["html_image"]
myst_heading_anchors = 3
autodoc_member_order = "bysource"
autodoc_preserve_defaults = True
autodoc_type_aliases = {name: name for name in ("Datatype", "Dialect", "Reduction", "Size")}
python_use_unqualified_type_names = True
suppress_warnings = ["misc.highlighting_failure"]


def add_help(app: object, page: str, source: list[str]) -> None:
    """Append the help of every verb to the page of commands."""
    if page == "docs/reference/cli":
        os.environ["COLUMNS"] = "110"
        for name, verb in verb_parsers().items():
            source[0] += f"\n## tuccl {name}\n\n```text\n{verb.format_help()}```\n"


def setup(app: Sphinx) -> None:
    """Connect the page of commands to the parsers."""
    app.connect("source-read", add_help)
