"""The style sheet of a report: light and dark, wide screens, phones and paper."""

STYLE = """
:root { color-scheme: light dark; --ink: #1a1f24; --paper: #ffffff; --soft: #f2f4f6;
  --grid: #c9d1d9; --slow: #b3261e; --fast: #1a6fb5; }
@media (prefers-color-scheme: dark) { :root { --ink: #e3e7eb; --paper: #14181c;
  --soft: #1e242a; --grid: #3c4650; --slow: #ff8a80; --fast: #79b8ff; } }
body { font: 15px/1.5 system-ui, sans-serif; color: var(--ink); background: var(--paper);
  max-width: 96rem; margin: 2rem auto; padding: 0 1rem; }
h1 { font-size: 1.5rem; } h2 { font-size: 1.15rem; margin-top: 2.2rem; }
.label { background: var(--soft); padding: .5rem .8rem; border-left: 4px solid var(--fast);
  max-width: 76rem; }
table { border-collapse: collapse; font-variant-numeric: tabular-nums; font-size: 13px; }
th, td { padding: .2rem .6rem; text-align: right; border-bottom: 1px solid var(--grid);
  white-space: nowrap; vertical-align: top; }
th.text, td.text { text-align: left; white-space: normal; overflow-wrap: anywhere;
  min-width: 6rem; } thead th { background: var(--soft); white-space: normal; }
small { display: block; opacity: .75; font-size: 11px; }
.slow { color: var(--slow); font-weight: 600; } .fast { color: var(--fast); }
.scroll { overflow-x: auto; } figure { margin: 1rem 0; }
figure svg, figure img { max-width: 100%; height: auto; } figcaption { font-size: 13px; }
.plots { display: grid; gap: 0 1.5rem;
  grid-template-columns: repeat(auto-fit, minmax(min(100%, 34rem), 1fr)); }
.heat td { border: 1px solid var(--grid); }
@media (max-width: 48rem) { table:not(.heat) thead { display: none; }
  table:not(.heat), table:not(.heat) tbody, table:not(.heat) tr, table:not(.heat) td {
    display: block; }
  table:not(.heat) tr { border-bottom: 2px solid var(--grid); padding: .4rem 0; }
  table:not(.heat) td { display: grid; grid-template-columns: auto 1fr; gap: 0 1rem;
    border: 0; text-align: right; }
  td::before { content: attr(data-name); opacity: .75; text-align: left; white-space: nowrap; }
  td small { grid-column: 2; }
  .heat td::before { content: none; }
  .wide::before { content: "scroll sideways \\2192"; position: sticky; left: 0;
    font-size: 12px; color: var(--fast); }
  .heat th:first-child { position: sticky; left: 0; background: var(--paper);
    white-space: normal; min-width: 5rem; } }
@media print { @page { size: landscape; margin: 12mm; } body { max-width: none; margin: 0; }
  .scroll { overflow: visible; } table { font-size: 8px; width: 100%; }
  th, td { padding: 1px 3px; white-space: normal; overflow-wrap: anywhere; }
  h2, h3 { break-after: avoid; } figure, tr { break-inside: avoid; }
  * { print-color-adjust: exact; } }
"""
