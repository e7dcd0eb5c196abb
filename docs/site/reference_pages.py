"""One page for each section of docs/commands.md: a command's with its options and what its exit codes mean.

On the forge commands.md is one page. A site has a page for each command, so that a search leads to it.
"""

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path, PurePosixPath

import click

from harness.cli import cli

COMMANDS = "docs/commands"
FOLDER = "docs/site/reference"
_HEADING = re.compile(r"(#{1,6}) (.+)")
_LINK = re.compile(r"(\]\()([^)\s:]+)(\))")
_OF_COMMANDS = re.compile(r"(`[a-z ]+`(?:, `[a-z ]+`)*): (.+)")


@dataclass(frozen=True)
class Section:
    title: str
    text: str

    @property
    def page(self) -> str:
        return f"{FOLDER}/{_anchor(self.title)}"


def pages(root: Path) -> dict[str, str]:
    """Return the text of each page by its path below `root`."""
    _, sections = _sections(root)
    exits = next(each.text for each in sections if each.title == "Exit codes")
    return {f"{each.page}.md": _page(each, exits) for each in sections}


def write(root: Path) -> None:
    """Write the pages below `root`, each where its text differs from what is there, and remove others."""
    folder = root / FOLDER
    folder.mkdir(exist_ok=True)
    texts = {root / path: text for path, text in pages(root).items()}
    for path in {*folder.glob("*.md")} - texts.keys():
        path.unlink()
    for path, text in texts.items():
        if not path.exists() or path.read_text("utf-8") != text:
            path.write_text(text, "utf-8")


def linked(root: Path, page: str, text: str) -> str:
    """Return a page's text with links to sections of commands.md turned to the pages of these sections.

    commands.md itself keeps what stands above its sections, and lists the pages.
    """
    opening, sections = _sections(root)
    if page == COMMANDS:
        listed = "\n".join(f"/{each.page}" for each in sections)
        text = f"{opening}\n```{{toctree}}\n:hidden:\n{listed}\n```\n"
    at = PurePosixPath(page)
    source = PurePosixPath(COMMANDS) if at.is_relative_to(FOLDER) else at
    places = _places(root)

    def target(found: re.Match[str]) -> str:
        path, _, anchor = found[2].partition("#")
        wanted = _joined(source.parent, path) if path else f"{source}.md"
        if wanted == f"{COMMANDS}.md" and anchor in places:
            own = places[anchor]
            below = "" if own.endswith(f"/{anchor}") else f"#{anchor}"
            address = f"{_relative(f'{own}.md', at.parent)}{below}"
        elif path and source != at:
            address = _relative(wanted, at.parent) + (f"#{anchor}" if anchor else "")
        else:
            address = found[2]
        return f"{found[1]}{address}{found[3]}"

    return "".join(line if code else _LINK.sub(target, line) for line, code in _lines(text))


def _page(section: Section, exits: str) -> str:
    text = "".join(
        line[1:] if not code and line.startswith("##") else line for line, code in _lines(section.text)
    )
    if not section.title.startswith("harness "):
        return text
    codes = _exit_codes(exits, section.title.removeprefix("harness "))
    return (
        f"{text.rstrip()}\n\n## Options\n\n```{{options}} {section.title}\n```\n\n## Exit status\n\n{codes}"
    )


def command(name: str) -> click.Command:
    """Return the command that a reader calls so, such as "harness ci compare"."""
    found: click.Command | None = cli
    for word in name.split()[1:]:
        assert isinstance(found, click.Group)
        found = found.get_command(click.Context(found), word)
    assert found, f"there is no command {name}"
    return found


def _exit_codes(text: str, command: str) -> str:
    """Return the table of exit codes with the sentences that hold for this command."""
    kept = []
    for line in text.splitlines():
        if not line.startswith("|"):
            continue
        *first, meaning = line.strip("|").split("|")
        sentences = (_of_command(sentence, command) for sentence in meaning.strip().split(". "))
        told = ". ".join(filter(None, sentences))
        if told:
            kept.append(f"|{'|'.join(first)}| {told} |")
    return "\n".join(kept) + "\n"


def _of_command(sentence: str, command: str) -> str:
    """Return what a sentence says of a command: nothing where it is about others by name."""
    named = _OF_COMMANDS.fullmatch(sentence)
    if not named:
        return sentence
    names = re.findall(r"`([^`]+)`", named[1])
    return named[2] if any(command == name or command.startswith(f"{name} ") for name in names) else ""


@cache
def _sections(root: Path) -> tuple[str, list[Section]]:
    """Return what stands above the sections of commands.md, and the sections."""
    opening, *sections = [""]
    for line, code in _lines((root / f"{COMMANDS}.md").read_text("utf-8")):
        if not code and line.startswith("## "):
            sections.append("")
        if sections:
            sections[-1] += line
        else:
            opening += line
    return opening, [Section(text.partition("\n")[0].removeprefix("## "), text) for text in sections]


@cache
def _places(root: Path) -> Mapping[str, str]:
    """Return the page of each heading of commands.md, by its anchor."""
    return {
        _anchor(found[2]): section.page
        for section in _sections(root)[1]
        for line, code in _lines(section.text)
        if not code and (found := _HEADING.match(line))
    }


def _lines(text: str) -> Iterator[tuple[str, bool]]:
    """Yield each line with its end, and whether it belongs to a block of code."""
    code = False
    for line in text.splitlines(keepends=True):
        fence = line.startswith("```")
        yield line, code or fence
        code ^= fence


def _anchor(heading: str) -> str:
    return re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-")


def _joined(folder: PurePosixPath, path: str) -> str:
    parts: list[str] = []
    for part in (folder / path).parts:
        if part == "..":
            parts.pop()
        elif part != ".":
            parts.append(part)
    return "/".join(parts)


def _relative(path: str, folder: PurePosixPath) -> str:
    return "../" * len(folder.parts) + path
