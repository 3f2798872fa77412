"""The sections on the machine and on the sketches of it that the choices are made on."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterator

from tuccl.eval.choice_analysis import sketch_of
from tuccl.eval.comparison import Comparison
from tuccl.eval.report.elements import fold, paragraph, picture, table
from tuccl.runtime import Table, select
from tuccl.sketches import Sketch, sketch_svg
from tuccl.topology import Topology, machine_svg, signature
from tuccl.units import format_bytes

_MOST_SKETCHES = 4


def machine_parts(machine: Topology | None) -> Iterator[str]:
    """Yield the picture of the machine, and which of its links nobody measured."""
    if machine is None:
        return
    yield paragraph(
        f"{machine.name}: {machine.ranks} ranks on {len(machine.hosts)} hosts, "
        f"signature {signature(machine)}. {assumed_links(machine)}; times depend on them."
    )
    yield picture(machine_svg(machine), f"picture of {machine.name}")
    counts = Counter(
        (link.kind, f"{link.bandwidth:.4g}", f"{link.latency:.4g}", link.origin)
        for link in machine.links
    )
    rows = [[*link, str(count)] for link, count in sorted(counts.items())]
    head = ["links", "GB/s each way", "latency us", "origin", "count"]
    yield fold("Table: the links", table(head, rows, "the machine's links", words=(0, 3)))


def assumed_links(machine: Topology) -> str:
    """Return how many links, by kind, have a rate or a latency that was assumed."""
    assumed = Counter(link.kind for link in machine.links if link.assumed)
    kinds = ", ".join(f"{count} {kind}" for kind, count in sorted(assumed.items())) or "none"
    return (
        f"Rates or latencies of {sum(assumed.values())} of its {len(machine.links)} links are "
        f"assumed ({kinds})"
    )


def sketch_parts(comparison: Comparison, stored: Table | None) -> Iterator[str]:
    """Yield the sketches of the choices that have most sizes, before and after pruning."""
    if stored is None:
        return
    sketches: dict[str, Sketch] = {}
    uses: dict[str, list[str]] = defaultdict(list)
    for row in comparison.tuned:
        root = max(row.root, 0)
        choice = select(stored.lookup, row.collective, row.size, root=root).candidate
        sketch = sketches.get(choice.sketch) or sketch_of(choice, stored, row.size)
        if sketch is not None:
            sketches[choice.sketch] = sketch
            uses[choice.sketch].append(f"{row.collective} {format_bytes(row.size)}")
    names = sorted(sketches, key=lambda name: -len(uses[name]))
    for name in names[:_MOST_SKETCHES]:
        sketch = sketches[name]
        yield f"<h3>{name}</h3>"
        yield paragraph(f"{len(sketch.links)} links, for {', '.join(uses[name])}.")
        if not sketch.pruned:
            yield paragraph("Nothing is pruned: every GPU has a link to every other.")
            continue
        svg = sketch_svg(sketch, stored.topology)
        yield picture(svg, f"sketch {name} before and after pruning")
        yield fold(f"Table: what {name} prunes", _pruned(sketch))
    if names[_MOST_SKETCHES:]:
        yield paragraph(f"Not drawn: {', '.join(names[_MOST_SKETCHES:])}.")


def _pruned(sketch: Sketch) -> str:
    """Return for each stage the links that it pruned, and one as an example."""
    first = {link.stage: link for link in reversed(sketch.pruned)}
    counts = Counter(link.stage for link in sketch.pruned)
    rows = [
        [stage, str(counts[stage]), f"{link.src} to {link.dst}: {link.reason}"]
        for stage, link in sorted(first.items())
    ]
    return table(["stage", "links pruned", "one of them"], rows, sketch.name, words=(0, 2))
