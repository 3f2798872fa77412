"""The style sheet of a report: light and dark, wide screens, phones and paper."""

# Series and cells are of Okabe and Ito's palette, which the colour-blind distinguish ("Color
# Universal Design", 2008), lighter on dark; lines differ in dashes and markers too.
STYLE = """
:root { color-scheme: light dark; --ink: #1a1f24; --paper: #ffffff; --soft: #f2f4f6;
  --grid: #c9d1d9; --link: #005a94; --bad: #a63f00; --pale: #3d4650;
  --series-0: #0072b2; --series-1: #d55e00; --series-2: #008a64; --series-3: #b0588a;
  --series-4: #8a6d00; --series-5: #3d8fc0; --fast: 0 114 178; --slow: 230 159 0;
  --regression: 213 94 0; }
@media screen and (prefers-color-scheme: dark) { :root { --ink: #e3e7eb; --paper: #14181c;
  --soft: #1e242a; --grid: #3c4650; --link: #79b8ff; --bad: #ff9f5f; --pale: #c2c9d0;
  --series-0: #56b4e9; --series-1: #f0803c; --series-2: #2fc79b; --series-3: #e39ac3;
  --series-4: #f0e442; --series-5: #a3b4ff; } }
@media print { :root { color-scheme: light; } }
* { box-sizing: border-box; }
body { font: 15px/1.5 system-ui, sans-serif; color: var(--ink); background: var(--paper);
  max-width: 96rem; margin: 2rem auto; padding: 0 1rem; overflow-wrap: anywhere; }
h1 { font-size: 1.5rem; } h2 { font-size: 1.15rem; margin-top: 2.2rem; }
dl { display: grid; grid-template-columns: minmax(6rem, auto) 1fr; gap: .2rem 1rem; }
dd { margin: 0; } h3 { font-size: 1rem; margin: 1.4rem 0 .4rem; } p { max-width: 76rem; }
a, summary { color: var(--link); } summary { cursor: pointer; padding: .3rem 0; }
:focus-visible { outline: 3px solid var(--link); outline-offset: 2px; }
.skip { position: absolute; left: -99rem; } .skip:focus { left: 1rem; top: .5rem;
  background: var(--paper); padding: .3rem .6rem; }
nav ul { list-style: none; display: flex; flex-wrap: wrap; gap: .3rem 1.2rem; padding: 0; }
.label { background: var(--soft); padding: .5rem .8rem; border-left: 4px solid var(--link); }
.regressions { color: var(--bad); font-weight: 600; }
table { border-collapse: collapse; font-variant-numeric: tabular-nums; font-size: 13px; }
th, td { padding: .2rem .6rem; text-align: right; border-bottom: 1px solid var(--grid);
  white-space: nowrap; vertical-align: top; }
th.text, td.text { text-align: left; white-space: normal; min-width: 6rem; }
thead th { background: var(--soft); white-space: normal; overflow-wrap: normal; }
small { display: block; font-size: 12px; color: var(--pale); }
.scroll { overflow-x: auto; position: relative; }
figure { margin: 1rem 0; } figcaption { font-size: 13px; max-width: 76rem; }
.chart svg { display: block; width: 100%; max-width: 38rem; height: auto; overflow: visible; }
.scroll img { display: block; max-width: 100%; height: auto; }
.charts { display: grid; gap: 0 1.5rem;
  grid-template-columns: repeat(auto-fit, minmax(min(100%, 26rem), 1fr)); }
.heat td { border: 1px solid var(--grid); }
.heat th:first-child { max-width: 22rem; }
.heat small { white-space: normal; min-width: 5rem; color: inherit; }
.cards small { white-space: normal; }
.fast, .share { background: rgb(var(--fast) / calc(.55 * var(--strength))); }
.slow { background: rgb(var(--slow) / calc(.15 + .4 * var(--strength))); }
.heat .regression { background: rgb(var(--regression) / .5); font-weight: 700;
  border: 2px solid var(--bad); }
@media screen and (max-width: 48rem) { .cards thead { display: none; }
  .cards, .cards tbody, .cards tr { display: block; }
  .cards tr { border-bottom: 2px solid var(--grid); padding: .4rem 0; }
  .cards td { display: grid; grid-template-columns: auto 1fr; gap: 0 1rem;
    border: 0; text-align: right; white-space: normal; }
  .cards td.text { text-align: left; }
  .cards td::before { content: attr(data-name); color: var(--pale); text-align: left; }
  td small { grid-column: 2; }
  .wide::before { content: "scroll sideways \\2192"; position: sticky; left: 0;
    font-size: 12px; color: var(--link); }
  .scroll img { max-width: none; }
  .heat th:first-child { position: sticky; left: 0; background: var(--paper);
    white-space: normal; width: 6rem; min-width: 6rem; }
  .plain .text { min-width: 3.8rem; } .heat small { min-width: 3.6rem; }
  th, td { padding: .2rem .35rem; } }
@media print { @page { size: landscape; margin: 12mm; } body { max-width: none; margin: 0; }
  nav, .skip { display: none; } .scroll { overflow: visible; }
  details::details-content { content-visibility: visible; display: block; block-size: auto; }
  summary { list-style: none; color: inherit; font-weight: 600; break-after: avoid; }
  table { font-size: 9px; max-width: 100%; } small { font-size: 8px; }
  th, td { padding: 1px 3px; white-space: normal; }
  .cards td:first-child { white-space: nowrap; }
  .scroll img { max-height: 130mm; width: auto; }
  .charts { grid-template-columns: repeat(auto-fit, minmax(72mm, 1fr)); }
  .chart svg { max-width: 125mm; }
  h2, h3 { break-after: avoid; } figure, tr { break-inside: avoid; }
  * { print-color-adjust: exact; } }
"""
