"""``tuccl sketch``: ranked sketches, with what was pruned and why."""

from __future__ import annotations

import argparse
from collections import Counter
from pathlib import Path

from tuccl.cli.arguments import add_collective, add_json, collectives_of, size_of, topology_of
from tuccl.cli.output import check_picture, columns, print_json, say, write_text
from tuccl.errors import InputError
from tuccl.sketches import (
    Sketch,
    SketchSpace,
    candidate_sketches,
    load_sketch,
    prune_congested,
    save_sketches,
    sketch_svg,
)

EXAMPLE = "tuccl sketch ndv2x2.json -c allgather -s 64M -o sketches/"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the verb's arguments."""
    parser.add_argument("topology", metavar="T", help="topology file, as `tuccl probe` writes it")
    add_collective(parser)
    parser.add_argument(
        "-s", "--size", required=True, metavar="SIZE", help="size of the call, like 64M"
    )
    parser.add_argument(
        "--max-congestion",
        type=float,
        metavar="X",
        help="drop links between hosts that would be over X times slower with all of them busy",
    )
    parser.add_argument(
        "--name",
        metavar="NAME,...",
        help="the sketches of these names, as programs of a table have them: one, split, pairs-N, "
        "paired or mesh, with -free, -links-N, -congestion-X, -inside-X or -nvlink; or files, like "
        "table/sketches/one-free.json",
    )
    parser.add_argument("-o", "--output", metavar="DIR", help="write the sketches into this folder")
    parser.add_argument(
        "--picture", metavar="F.svg", help="draw the first sketch, before and after pruning"
    )
    add_json(parser)


def run(args: argparse.Namespace) -> int:
    """Derive, write and print."""
    check_picture(args.picture)
    topology = topology_of(args.topology)
    [collective, *rest] = collectives_of(args.collective)
    if rest:
        raise InputError("-c: one collective at a time, as a sketch is made for one")
    nbytes = size_of(args.size, topology.ranks)
    if args.name:
        space = SketchSpace(topology, nbytes)
        sketches = tuple(
            load_sketch(name, topology) if name.endswith(".json") else space.sketch(name)
            for name in dict.fromkeys(args.name.split(","))
        )
    else:
        sketches = candidate_sketches(topology, collective, nbytes)
    if args.max_congestion is not None:
        sketches = tuple(prune_congested(s, topology, args.max_congestion) for s in sketches)
    files = save_sketches(sketches, args.output) if args.output else [None] * len(sketches)
    if args.picture:
        write_text(Path(args.picture), sketch_svg(sketches[0], topology))
        say(f"{args.picture}: picture of sketch {sketches[0].name}")
    rows = [facts(sketch, file) for sketch, file in zip(sketches, files, strict=True)]
    if args.json:
        print_json({"sketches": rows})
        return 0
    header = ["sketch", "links", "inter-node", "congestion", "pruned", "by stage", "file"]
    print(
        columns(
            header,
            [
                [
                    r["name"],
                    r["links"],
                    r["internode_links"],
                    r["worst_congestion"],
                    len(s.pruned),
                    stages(s),
                    r["file"],
                ]
                for r, s in zip(rows, sketches, strict=True)
            ],
        )
    )
    return 0


def facts(sketch: Sketch, file: Path | None) -> dict[str, object]:
    """Return what ``--json`` says of a sketch."""
    return {
        "name": sketch.name,
        "file": None if file is None else str(file),
        "links": len(sketch.links),
        "internode_links": sketch.internode_links,
        "worst_congestion": max((link.congestion for link in sketch.links), default=0.0),
        "pruned": [
            {"src": p.src, "dst": p.dst, "stage": p.stage, "reason": p.reason}
            for p in sketch.pruned
        ],
    }


def stages(sketch: Sketch) -> str:
    """Return how many links each stage pruned, as text."""
    counts = Counter(p.stage for p in sketch.pruned)
    return " ".join(f"{stage}:{count}" for stage, count in sorted(counts.items())) or "-"
