"""The look of a review's page: light and dark, wide and narrow; text at 4.5 : 1 and more."""

from __future__ import annotations

__all__ = ["STYLE"]

STYLE = """\
:root { color-scheme: light dark; --page: #fff; --text: #1a2028; --muted: #566070; --rule: #dde1e7;
  --soft: #f1f4f7; --link: #0a5a8c; --zone: #dfeaf2; --dot: #4b7fa6; --bad: #a93800; --good: #00664a;
  --open: #765000 }
@media (prefers-color-scheme: dark) { :root { --page: #11151a; --text: #e3e7ec; --muted: #9ba6b3;
  --rule: #2d3540; --soft: #1d232b; --link: #72b9ea; --zone: #22384a; --dot: #6fa9d3; --bad: #ff9a70;
  --good: #54cfa6; --open: #edbd57 } }
* { box-sizing: border-box }
body { margin: 0 auto; max-width: 62rem; padding: 1rem; background: var(--page); color: var(--text);
  font: 15px/1.55 system-ui, sans-serif; overflow-wrap: anywhere }
h1, h2 { line-height: 1.3; margin: 0 0 .6rem }
h1 { font-size: 1.35rem }
h2 { font-size: 1.1rem; margin-top: 2.2rem }
a { color: var(--link) }
code, pre { font: .87em/1.5 ui-monospace, monospace; background: var(--soft); border-radius: 4px }
code { padding: .1em .3em; unicode-bidi: isolate }
pre { padding: .7rem; overflow-x: auto; overflow-wrap: normal; unicode-bidi: plaintext }
summary { cursor: pointer; padding: .3rem 0 }
.scroll { overflow-x: auto }
table { border-collapse: collapse; font-variant-numeric: tabular-nums; font-size: .9rem }
th, td { padding: .3rem .7rem .3rem 0; border-bottom: 1px solid var(--rule); text-align: left;
  white-space: nowrap; overflow-wrap: normal }
td:nth-child(n + 2):nth-child(-n + 7) { text-align: right }
.row { display: grid; grid-template-columns: minmax(9rem, 17rem) 1fr 14.5rem; gap: 0 .8rem;
  align-items: center; border-bottom: 1px solid var(--rule); padding: .1rem 0; font-size: .9rem }
.row > :last-child { text-align: right; font-variant-numeric: tabular-nums }
.row b { font-weight: 600 }
.muted, .axis text { color: var(--muted); fill: var(--muted); font-size: 11px }
svg { display: block; overflow: visible }
.zone { fill: var(--zone) }
.zero, .tick { stroke: var(--muted) }
.interval { stroke: var(--dot); stroke-width: 2 }
.process { fill: var(--dot); opacity: .45 }
.effect { fill: var(--dot) }
.row > :first-child { color: var(--text) }
.unchanged b, .identical b { font-weight: 400; color: var(--muted) }
.regression, .missing, .failed { color: var(--bad) }
.improvement { color: var(--good) }
.inconclusive, .invalid { color: var(--open) }
.regression .effect, .improvement .effect, .inconclusive .effect, .invalid .effect { fill: currentColor }
.regression .interval, .improvement .interval, .inconclusive .interval, .invalid .interval {
  stroke: currentColor }
@media (max-width: 42rem) {
  .row { grid-template-columns: 1fr auto; padding: .4rem 0 }
  .row > svg { grid-row: 2; grid-column: 1 / -1 }
  .row.axes > span { display: none }
}
@media print { details > * { display: block } }
"""
