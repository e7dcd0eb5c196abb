"""Templates of every kind: what others wrote stays text in them."""

from __future__ import annotations

import html
import re
import sys
import unicodedata
from pathlib import Path

import pytest
from jinja2 import Environment, TemplateAssertionError, UndefinedError
from markdown_it import MarkdownIt

import harness
from harness.report.templates import html_environment, markdown_environment
from tests.review_samples import ATTACKS

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

VALUES = """\
{%- macro shown(inner) %}<b>{{ inner }}</b>{% endmacro %}
{{- text }}{{ shown(text) }}{{ [text, text]|join(", ") }}"""


@pytest.fixture
def of_html(tmp_path) -> Environment:
    return html_environment(tmp_path)


@pytest.mark.parametrize("text", ATTACKS)
def test_a_value_is_text_in_html_and_on_one_line(of_html, text):
    told = of_html.from_string(VALUES).render(text=text)
    assert told.count("<") == told.count("<b>") + told.count("</b>") == 2
    assert '"' not in told
    assert "\n" not in told
    read = html.unescape(told)
    assert not [each for each in read if unicodedata.category(each) in ("Cc", "Cf", "Cs", "Zl", "Zp")]


@pytest.mark.parametrize("text", [each for each in ATTACKS if "\n" not in each and "\0" not in each])
def test_a_value_is_text_in_markdown(tmp_path, text):
    told = markdown_environment(tmp_path).from_string("- {{ text }}").render(text=text)
    inside = [child.type for token in MarkdownIt().parse(told) for child in token.children or ()]
    assert set(inside) == {"text"}


def test_escaping_cannot_be_switched_off_by_a_filter(of_html):
    with pytest.raises(TemplateAssertionError):
        of_html.from_string("{{ text|safe }}")


def test_a_value_that_nobody_gave_is_an_error(of_html):
    with pytest.raises(UndefinedError):
        of_html.from_string("{{ nobody }}").render()


TEMPLATES = sorted(Path(harness.__file__).parent.rglob("*.j2"))


@pytest.mark.parametrize("path", TEMPLATES, ids=lambda path: path.name)
def test_a_value_in_a_tag_stands_between_double_quotes(path):
    """Without quotes, or between others, escaping does not keep a value inside its attribute."""
    text = path.read_text(encoding="utf-8")
    for found in re.finditer(r"<[a-z][^<>]*?\s[\w-]+=(?P<value>.)", re.sub(r"{%.*?%}|{#.*?#}", "", text)):
        assert found["value"] == '"', found[0]


def test_the_wheel_has_every_file_of_the_package():
    """Templates are no Python, and lie beside it."""
    project = tomllib.loads(
        (Path(harness.__file__).parents[1] / "pyproject.toml").read_text(encoding="utf-8")
    )
    wheel = project["tool"]["hatch"]["build"]["targets"]["wheel"]
    assert wheel["packages"] == ["harness"]
    assert not {"artifacts", "exclude", "include", "only-include"} & {*wheel}
