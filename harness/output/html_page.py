"""What a page has that needs nothing else: no script, no request, and it works from a disk."""

from __future__ import annotations

__all__ = ["CLOSING", "opening", "scrolled"]

import base64
import hashlib
from collections.abc import Iterable

from harness.output.sheet import safe

CLOSING = "</main></body></html>"
_STYLE = """\
:root { color-scheme: light dark; --page: #fff; --text: #1a2028; --muted: #566070; --rule: #dde1e7;
  --soft: #f1f4f7; --link: #0a5a8c; --zone: #dfeaf2; --dot: #4b7fa6; --bad: #a93800; --good: #00664a;
  --open: #765000 }
@media (prefers-color-scheme: dark) { :root { --page: #11151a; --text: #e3e7ec; --muted: #9ba6b3;
  --rule: #2d3540; --soft: #1d232b; --link: #72b9ea; --zone: #22384a; --dot: #6fa9d3; --bad: #ff9a70;
  --good: #54cfa6; --open: #edbd57 } }
* { box-sizing: border-box }
body { margin: 0 auto; max-width: 66rem; padding: 1rem; background: var(--page); color: var(--text);
  font: 15px/1.55 system-ui, sans-serif; overflow-wrap: anywhere }
h1, h2 { line-height: 1.3; margin: 0 0 .6rem }
h1 { font-size: 1.35rem }
h2 { font-size: 1.1rem; margin-top: 2.2rem }
a { color: var(--link) }
.muted { color: var(--muted); font-size: .87rem }
.problem { color: var(--bad) }
.scroll { overflow-x: auto; margin: 0 0 1.4rem }
.scroll:focus-visible { outline: 2px solid var(--good) }
table { border-collapse: collapse; font-variant-numeric: tabular-nums; font-size: .9rem }
caption { text-align: left; font-weight: 600; padding: .2rem 0; white-space: nowrap }
th, td { padding: .3rem .9rem .3rem 0; border-bottom: 1px solid var(--rule); text-align: left;
  white-space: nowrap; overflow-wrap: normal; font-weight: 400 }
th[scope=col] { color: var(--muted); font-size: .87em }
[align=right] { text-align: right }
"""
"""Light and dark, wide and narrow; text at 4.5 : 1 and more."""


def opening(title: str, style: str) -> str:
    """Up to the first of what the page shows. Its policy allows its own style and nothing else."""
    style = _STYLE + style
    digest = base64.b64encode(hashlib.sha256(style.encode()).digest()).decode()
    rules = f"default-src 'none'; style-src 'sha256-{digest}'; base-uri 'none'; form-action 'none'"
    return (
        '<!doctype html>\n<html lang="en"><head><meta charset="utf-8">\n'
        f'<meta http-equiv="Content-Security-Policy" content="{rules}">\n'
        '<meta name="viewport" content="width=device-width, initial-scale=1">\n'
        '<meta name="referrer" content="no-referrer">\n'
        f"<title>{safe(title)}</title>\n<style>{style}</style></head><body><main>"
    )


def scrolled(title: str, kind: str, inner: Iterable[str]) -> str:
    """A table in a region of its own, so that a narrow screen moves the table and not the page."""
    name = safe(title)
    return (
        f'<div class="scroll" role="region" aria-label="{name}" tabindex="0"><table class="of-{kind}">'
        f"<caption>{name}</caption>\n{''.join(inner)}</table></div>"
    )
