"""The documentation's site, which `make docs` writes: Sphinx reads the Markdown pages where they lie."""

from docutils import nodes
from sphinx.application import Sphinx

from harness import __version__

project = "gpu-harness"
release = __version__
extensions = ["myst_parser", "sphinx.ext.autodoc", "sphinx_click"]
root_doc = "docs/site/contents"
include_patterns = ["docs/**.md", "GLOSSARY.md", "CONTRIBUTING.md", "CHANGELOG.md"]
myst_heading_anchors = 4
# The page of all kernels links to the page of each.
suppress_warnings = ["toc.not_included"]
autodoc_member_order = "bysource"
autodoc_typehints = "description"
html_theme = "furo"
html_title = "gpu-harness"
html_show_copyright = False
html_show_sphinx = False
templates_path = ["templates"]
html_additional_pages = {"index": "to_contents.html"}


def setup(app: Sphinx) -> None:
    app.connect("doctree-read", _unlink_cases)


def _unlink_cases(_app: Sphinx, page: nodes.document) -> None:
    """Turn links to addresses of mail back into text: a case such as matmul.naive@1024 looks like one."""
    for link in [*page.findall(nodes.reference)]:
        if link.get("refuri", "").startswith("mailto:"):
            link.replace_self(link.children)
