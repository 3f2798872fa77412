"""The section on choices in detail: what sets their times, what knobs gain, use of links."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Sequence
from itertools import pairwise

from tuccl.errors import Infeasible, InputError
from tuccl.eval.choice_analysis import ChoiceAnalysis, analyse_choice, programs_of
from tuccl.eval.comparison import Comparison, call_name
from tuccl.eval.report.charts import link_use_svg, use_over_time
from tuccl.eval.report.elements import HeatCell, chart, fold, heat_map, paragraph
from tuccl.runtime import NCCL_VERSION, Table
from tuccl.runtime.backends import executor_on
from tuccl.synth import Collective
from tuccl.units import format_bytes

_MOST_BYTES = 64 << 20  # of a call that is recorded: longer ones take long and show no more
_LEAST_SHARE = 0.04  # of a time, for a row of its own
_PARTS = 10  # of a time in a table
_STRONGEST = 2.0  # a factor in time that has all of the colour


def choice_parts(comparison: Comparison, stored: Table | None) -> Iterator[str]:
    """Yield the parts of the section: each collective at its smallest, middle and largest size."""
    if stored is None:
        return
    yield paragraph(
        "The table's choices at three sizes of each collective, run once more in the simulator: "
        "every number of this section is simulated, whatever the times above are."
    )
    try:
        executor = executor_on(stored.topology, "sim", stored.lookup.dialect)
    except InputError as error:
        yield paragraph(f"The machine is not simulated: {error}.")
        return
    if executor.runs_plans:
        yield paragraph("The simulator keeps no record of MSCCL++'s plans: they are left out.")
        return
    for collective, root in comparison.calls:
        yield f"<h3>{call_name(collective, root)}</h3>"
        call = Collective(collective, stored.topology.ranks, max(root, 0))
        cache = programs_of(stored, call)
        analyses = []
        for nbytes in _three_sizes(comparison, (collective, root)):
            try:
                version = comparison.nccl_version or NCCL_VERSION
                analyses.append(analyse_choice(stored, executor, cache, nbytes, version))
            except (Infeasible, InputError) as error:
                yield paragraph(f"{format_bytes(nbytes)} is left out: {error}.")
        if analyses:
            maps = _path_map(analyses, executor.label), _effect_map(analyses, executor.label)
            yield f'<div class="charts">{"".join(maps)}</div>'
            yield from _link_use(analyses)


def _three_sizes(comparison: Comparison, call: tuple[str, int]) -> list[int]:
    sizes = sorted({r.size for r in comparison.tuned if (r.collective, r.root) == call})
    short = [size for size in sizes if size <= _MOST_BYTES] or sizes[:1]
    return sorted({short[0], short[len(short) // 2], short[-1]})


def _path_map(analyses: Sequence[ChoiceAnalysis], label: str) -> str:
    """Return by size the share of each part of the chain of events that sets the time."""
    shares: dict[str, dict[int, float]] = defaultdict(dict)
    for analysis in analyses:
        for part in analysis.path.parts:
            if part.us > _LEAST_SHARE * analysis.path.time_us:
                shares[part.what][analysis.nbytes] = part.us / analysis.path.time_us

    def cell(share: float | None) -> HeatCell | None:
        return None if share is None else HeatCell(f"{100 * share:.0f} %", "share", share)

    lines = [
        (what, [cell(by_size.get(a.nbytes)) for a in analyses])
        for what, by_size in sorted(shares.items(), key=lambda item: -sum(item[1].values()))
    ]
    lines.append(("time, us", [HeatCell(f"{a.time_us:.1f}") for a in analyses]))
    caption = (
        "Why it takes so long: parts of the chain of events that sets the time; those below "
        f"{100 * _LEAST_SHARE:.0f} % are left out ({label})."
    )
    return heat_map("share", [a.nbytes for a in analyses], lines, caption)


def _effect_map(analyses: Sequence[ChoiceAnalysis], label: str) -> str:
    """Return by size the time with one dimension at its default over the time as chosen."""
    effects = [{effect.dimension: effect for effect in a.effects} for a in analyses]
    names = list(dict.fromkeys(name for each in effects for name in each))
    if not names:
        return paragraph("Every knob stands at its default, or the choice is NCCL's own.")

    def cell(number: int, name: str) -> HeatCell | None:
        if name not in effects[number]:
            return None
        effect = effects[number][name]
        note = f"{effect.chosen} → {effect.default}"
        if effect.time_us is None:
            return HeatCell("no run", note=note)
        ratio = effect.time_us / analyses[number].time_us
        kind = "" if round(ratio, 2) == 1 else "fast" if ratio > 1 else "slow"
        return HeatCell(f"{ratio:.2f}x", kind, min(abs(ratio - 1) / (_STRONGEST - 1), 1.0), note)

    lines = [(name, [cell(i, name) for i in range(len(analyses))]) for name in names]
    caption = (
        "Knob effects: the time with one knob at its default, the others as chosen, over the time "
        f"as chosen; more than 1 is what the choice gains, - is at its default ({label})."
    )
    return heat_map("time", [a.nbytes for a in analyses], lines, caption)


def _link_use(analyses: Sequence[ChoiceAnalysis]) -> Iterator[str]:
    """Yield the timelines, and the tables behind them."""
    captions = [
        f"Link use over {format_bytes(a.nbytes)}: the busiest link, and means of all links of a "
        "kind (simulated)."
        for a in analyses
    ]
    charts = (chart(link_use_svg(a), text) for a, text in zip(analyses, captions, strict=True))
    yield f'<div class="charts">{"".join(charts)}</div>'
    tables = (_use_table(a, text) for a, text in zip(analyses, captions, strict=True))
    yield fold("Tables: link use over time (simulated)", "".join(tables))


def _use_table(analysis: ChoiceAnalysis, caption: str) -> str:
    lines = []
    for name, shares in use_over_time(analysis):
        edges = [round(i * len(shares) / _PARTS) for i in range(_PARTS + 1)]
        means = [sum(shares[a:b]) / (b - a) for a, b in pairwise(edges) if b > a]
        lines.append((name, [HeatCell(f"{100 * m:.0f} %", "share", m) for m in means]))
    heads = [f"{100 * (i + 1) // _PARTS} %" for i in range(_PARTS)]
    return heat_map("until, of the time", heads, lines, caption)
