"""The documentation's site, which `make docs` writes: Sphinx reads the Markdown pages where they lie."""

import sys
from pathlib import Path

import click
from docutils import nodes
from sphinx.application import Sphinx
from sphinx_click.ext import ClickDirective

from harness import __version__

sys.path.insert(0, str(Path(__file__).parent))

import reference_pages

project = "gpu-harness"
release = __version__
extensions = ["myst_parser", "sphinx.ext.autodoc", "sphinx_click"]
root_doc = "docs/site/contents"
include_patterns = ["docs/**.md", "GLOSSARY.md", "CONTRIBUTING.md", "CHANGELOG.md"]
# Sphinx looks for pages in every other folder, the virtual environment's too.
exclude_patterns = [".*", "harness", "kernels", "tests"]
myst_heading_anchors = 4
# The page of all kernels links to the page of each.
suppress_warnings = ["toc.not_included"]
autodoc_member_order = "bysource"
autodoc_typehints = "description"
html_theme = "furo"
html_title = "gpu-harness"
html_favicon = "../../harness/report/site/assets/static/icon.svg"
html_show_copyright = False
html_show_sphinx = False
templates_path = ["templates"]
html_additional_pages = {"index": "to_contents.html"}


class Options(ClickDirective):
    """`{options} harness ci compare`: the usage and the options of a command, on a page that has its name."""

    final_argument_whitespace = True

    def _load_module(self, module_path: str) -> click.Command:
        return reference_pages.command(module_path)

    def run(self) -> list[nodes.Node]:
        self.options = {"prog": self.arguments[0], "nested": "none"}
        (section,) = super().run()
        return section.children[1:]


def setup(app: Sphinx) -> None:
    app.add_directive("options", Options)
    app.connect("config-inited", _write_reference)
    app.connect("source-read", _lead_to_reference)
    app.connect("sphinx-click-process-description", _say_nothing)
    app.connect("doctree-read", _unlink_cases)


def _write_reference(app: Sphinx, _config: object) -> None:
    reference_pages.write(Path(app.srcdir))


def _lead_to_reference(app: Sphinx, page: str, source: list[str]) -> None:
    source[0] = reference_pages.linked(Path(app.srcdir), page, source[0])


def _say_nothing(_app: Sphinx, _context: object, lines: list[str]) -> None:
    """Leave out the first paragraph of a command's help: the page has said it."""
    lines.clear()


def _unlink_cases(_app: Sphinx, page: nodes.document) -> None:
    """Turn links to addresses of mail back into text: a case such as matmul.naive@1024 looks like one."""
    for link in [*page.findall(nodes.reference)]:
        if link.get("refuri", "").startswith("mailto:"):
            link.replace_self(link.children)
