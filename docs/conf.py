"""The documentation site, built by `make docs`.

The source folder is the whole repository, so that a link between pages works there and here alike.
"""

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
suppress_warnings = ["misc.highlighting_failure"]
