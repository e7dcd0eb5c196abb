"""Record what `harness demo` writes to a terminal, as two pictures for README.md: light and dark.

    python scripts/record_demo.py docs/pictures

The same output gives the same files, byte for byte. Needs Linux, for a terminal of its own.
"""

from __future__ import annotations

import argparse
import fcntl
import os
import pty
import re
import struct
import subprocess
import sys
import tempfile
import termios
from collections.abc import Sequence
from io import StringIO
from pathlib import Path

from rich._export_format import CONSOLE_SVG_FORMAT
from rich.console import Console
from rich.terminal_theme import TerminalTheme
from rich.text import Text

COLUMNS, ROWS = 100, 40
SCREENS = ("1.", "2.")
"""The numbers of the screens that are shown: the verdicts and the history."""
_ANSI = ((0x24, 0x29, 0x2E), (0xB3, 0x1D, 0x28), (0x11, 0x63, 0x29), (0x8A, 0x5A, 0x00), (0x05, 0x50, 0xAE))
_ANSI_DARK = (
    (0x48, 0x4F, 0x58),
    (0xFF, 0x8A, 0x80),
    (0x56, 0xD3, 0x64),
    (0xE3, 0xB3, 0x41),
    (0x79, 0xC0, 0xFF),
)
_OTHERS = ((0x82, 0x50, 0xDF), (0x1B, 0x7C, 0x83), (0x6E, 0x77, 0x81))
_OTHERS_DARK = ((0xD2, 0xA8, 0xFF), (0x56, 0xD4, 0xDD), (0xB1, 0xBA, 0xC4))
THEMES = {
    "light": TerminalTheme((0xFF, 0xFF, 0xFF), (0x1F, 0x23, 0x28), [*_ANSI, *_OTHERS], [*_ANSI, *_OTHERS]),
    "dark": TerminalTheme(
        (0x0D, 0x11, 0x17), (0xE6, 0xED, 0xF3), [*_ANSI_DARK, *_OTHERS_DARK], [*_ANSI_DARK, *_OTHERS_DARK]
    ),
}
# The reader's own monospaced font: an image on a page may fetch none.
_FORMAT = re.sub(r"@font-face \{\{.*?\}\}\n", "", CONSOLE_SVG_FORMAT, flags=re.DOTALL)


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("pictures", type=Path, metavar="FOLDER", help="where the pictures go")
    folder = parser.parse_args().pictures
    with tempfile.TemporaryDirectory() as scratch:
        command = [sys.executable, "-m", "harness", "demo", "--no-open", "--folder", f"{scratch}/demo"]
        lines = shown(in_terminal(command))
    for name, theme in THEMES.items():
        (folder / f"demo-{name}.svg").write_text(picture(lines, theme), "utf-8")


def in_terminal(command: Sequence[str]) -> str:
    """Return a command's results as a terminal gets them, with colours; its progress is left out.

    Raises OSError where the command fails.
    """
    ours, theirs = pty.openpty()
    fcntl.ioctl(theirs, termios.TIOCSWINSZ, struct.pack("HHHH", ROWS, COLUMNS, 0, 0))
    variables = {name: value for name, value in os.environ.items() if name not in ("NO_COLOR", "COLUMNS")}
    variables |= {"TERM": "xterm-256color", "LANG": "C.UTF-8"}
    process = subprocess.Popen(command, stdin=theirs, stdout=theirs, stderr=subprocess.DEVNULL, env=variables)
    os.close(theirs)
    told = b""
    while True:
        try:
            part = os.read(ours, 65536)
        except OSError:  # the other side is closed
            break
        if not part:
            break
        told += part
    os.close(ours)
    if status := process.wait():
        raise OSError(f"{' '.join(command)} ended with exit status {status}: {told.decode()}")
    return told.decode().replace("\r\n", "\n")


def shown(told: str) -> list[str]:
    """Return the lines of the chosen screens, below the command and above an empty line."""
    screens = re.split(r"^(?=\d\. )", told, flags=re.MULTILINE)[1:]
    chosen = [screen.rstrip().splitlines() for screen in screens if screen.startswith(SCREENS)]
    lines = ["$ harness demo"]
    for screen in chosen:
        lines += ["", *screen]
    return [*lines, ""]


def picture(lines: Sequence[str], theme: TerminalTheme) -> str:
    """Return a terminal that shows these lines, as SVG."""
    console = Console(record=True, width=COLUMNS, file=StringIO(), force_terminal=True, legacy_windows=False)
    for line in lines:
        console.print(Text.from_ansi(line), no_wrap=True, crop=True, highlight=False)
    return console.export_svg(title="harness demo", theme=theme, code_format=_FORMAT, unique_id="demo")


if __name__ == "__main__":
    main()
