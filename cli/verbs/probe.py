"""``tuccl probe``: reads a machine, or a description of one, into a topology."""

from __future__ import annotations

import argparse
import re
import sys
from collections import Counter
from pathlib import Path

from tuccl.cli.arguments import add_json, topology_of
from tuccl.cli.joining import (
    add_hosts,
    add_joining,
    answering_hosts,
    host_names,
    join_cluster,
    names_of,
    report_fabric,
)
from tuccl.cli.measuring import add_measuring, measure_emulation, measure_topology
from tuccl.cli.output import check_picture, check_target, print_json, say, warn, write_text
from tuccl.errors import InputError
from tuccl.files import printable_path, read_bounded
from tuccl.runtime.probing import read_transports
from tuccl.topology import (
    PROFILES,
    SHAPES,
    Topology,
    differences,
    encode_topology,
    join,
    keep_gpus,
    load_profile,
    machine_svg,
    merge_nics,
    overlay,
    probe_local,
    read_cluster,
    signature,
    split_into_cells,
)
from tuccl.topology.merge import MERGE_LEVELS
from tuccl.topology.profiles import fitting_profiles
from tuccl.topology.readers.fabrics import describes_fabric
from tuccl.topology.readers.registry import HOST_READERS
from tuccl.topology.show import matrix
from tuccl.topology.smi import smi_matrix

_BY_PROFILE = "by --profile"
RACK_TRAYS = {"gb200": 18}
EXAMPLE = "tuccl probe --from ndv2-topo.xml --profile ndv2 --nodes 2 -o ndv2x2.json"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the verb's arguments."""
    summaries = "; ".join(f"{reader.name}: {reader.summary}" for reader in HOST_READERS)
    parser.add_argument(
        "--from",
        dest="sources",
        nargs="+",
        action="extend",
        default=[],
        metavar="FILE",
        help=f"a description of a machine, recognized by its content ({summaries}); several "
        "files, one a host, make a cluster; a fabric file alone is summarized",
    )
    parser.add_argument(
        "--format",
        choices=[reader.name for reader in HOST_READERS],
        help="read --from as this format",
    )
    parser.add_argument(
        "--fsroot",
        metavar="DIR",
        help="read the machine whose /sys was captured in DIR, not this one",
    )
    parser.add_argument(
        "--profile",
        metavar="NAME",
        help=f"a known machine ({' '.join((*PROFILES, *SHAPES))}); with --from it adds what the "
        "file lacks",
    )
    parser.add_argument(
        "--merge-nics",
        choices=MERGE_LEVELS,
        help="merge NICs into one of the sum of their rates: the ports of a card, as NCCL 2.27 and "
        "later do, or all of a GPU, as aws-ofi-nccl does",
    )
    parser.add_argument("--gpus", metavar="LIST", help="keep these GPUs of a host: 0-3 or 0,2,4")
    parser.add_argument(
        "--cells",
        metavar="FILE",
        help="what `tuccl doctor --transports --json` printed for a rank of each GPU: ranks that "
        "do not share memory there become hosts of their own",
    )
    parser.add_argument(
        "--nodes", type=int, default=1, metavar="N", help="join N such hosts through their NICs"
    )
    add_hosts(parser)
    add_joining(parser)
    add_measuring(parser)
    parser.add_argument(
        "--show", metavar="T", help="print the topology in T as `nvidia-smi topo -m` would"
    )
    parser.add_argument(
        "--rates",
        action="store_true",
        help="print GB/s of every pair of GPUs instead, with the source of each rate",
    )
    parser.add_argument(
        "--picture",
        metavar="F.svg",
        help="draw the topology: a cluster's fabric, and each kind of host once",
    )
    parser.add_argument(
        "--drift",
        metavar="T",
        help="report how the machine differs from the topology in T; exit 1 if it does",
    )
    parser.add_argument(
        "-o", "--output", metavar="T", help="write the topology here; -: on standard output"
    )
    add_json(parser)


def run(args: argparse.Namespace) -> int:
    """Read, join, write and print."""
    check_arguments(args)
    if len(args.sources) == 1 and describes_fabric(args.sources[0]):
        return report_fabric(args)
    if args.cluster and not args.measure:
        raise InputError("--cluster: expected --measure too")
    if args.cluster:
        topology, warnings = measure_emulation(args)
    else:
        shown = (kept(args, topology_of(args.show)), ()) if args.show else None
        topology, warnings = shown or read_machine(args)
        warn(warnings)
        if args.measure:
            topology, notes = measure_topology(args, topology)
            warnings += notes
    if args.drift:
        return report_drift(args, topology)
    if args.picture:
        write_text(Path(args.picture), machine_svg(topology))
        say(f"{args.picture}: picture of {topology.name}")
    if args.output == "-":
        sys.stdout.write(encode_topology(topology).decode())
        say(describe(topology))
        return 0
    if args.output:
        write_text(Path(args.output), encode_topology(topology).decode())
    if args.json:
        print_json(facts(topology, warnings))
    elif args.show or not (args.output or args.picture):
        print(matrix(topology) if args.rates else smi_matrix(topology))
    elif args.output:
        print(f"{args.output}: {describe(topology)}")
    return 0


def check_arguments(args: argparse.Namespace) -> None:
    """Refuse, before anything is read, arguments that lack another and places not to be written.

    Raises:
        InputError: such an argument.
    """
    if args.output and args.output != "-":
        check_target(Path(args.output))
    check_picture(args.picture)
    if args.by_rack and not args.fabric_files:
        raise InputError("--by-rack: expected --fabric-file, which lists the racks")
    if args.scale is not None and not args.cluster:
        raise InputError("--scale: expected --cluster, whose rates it scales")


def report_drift(args: argparse.Namespace, topology: Topology) -> int:
    """Print how the machine differs from the topology it is checked against; 1 where it does."""
    drift = differences(topology_of(args.drift), topology)
    if args.json:
        print_json({"ok": not drift, "drift": list(drift)})
    else:
        print("\n".join(drift) or f"{args.drift}: no drift; signature {signature(topology)}")
    return 1 if drift else 0


def read_machine(args: argparse.Namespace) -> tuple[Topology, tuple[str, ...]]:
    """Return the topology the arguments describe, and what had to be assumed for it."""
    if not 1 <= args.nodes <= 1024:
        raise InputError(f"--nodes {args.nodes}: expected 1 to 1024 hosts")
    by_name, warnings = answering_hosts(args)
    if by_name:
        machines = [completed(args, topology, ()) for topology in by_name.values()]
        names: tuple[str, ...] | None = tuple(by_name)
    elif len(args.sources) > 1:
        if args.nodes != 1:
            raise InputError("--nodes: expected one host's file; several files are one host each")
        by_source = [(source, *read_host(args, source)) for source in args.sources]
        machines = [
            (topology, tuple(f"{printable_path(source)}: {text}" for text in of_host))
            for source, topology, of_host in by_source
        ]
        names = None
    else:
        machines, names = [read_host(args, *args.sources)], None
    warnings += tuple(warning for _, of_host in machines for warning in of_host)
    hosts = [topology for topology, _ in machines]
    if names is None and args.names is None and not args.fabric_files and len(hosts) == 1:
        joins = args.nodes != 1 or args.fabric != "single" or args.up or args.down
        cluster = join(hosts[0], args.nodes, args.fabric, args.up, args.down) if joins else hosts[0]
        return cluster, (*warnings, *rack_notes(args, hosts[0]))
    if len(hosts) == 1 and names is None:
        hosts *= args.nodes if args.names is None or args.nodes > 1 else len(names_of(args.names))
    names = host_names(args, len(hosts), names)
    cluster, notes = join_cluster(args, dict(zip(names, hosts, strict=True)))
    return cluster, (*warnings, *notes)


def rack_notes(args: argparse.Namespace, host: Topology) -> tuple[str, ...]:
    """Return a warning if NICs join hosts that a rack joins by NVLink."""
    trays = min(args.nodes, RACK_TRAYS.get(args.profile, 1))
    if trays == 1:
        return ()
    rest = f"{trays} of them, and --nodes joins several" if args.nodes > trays else "them"
    rack = f"{args.profile}-nvl{trays * host.ranks}"
    return (f"{args.nodes} hosts joined by NICs; --profile {rack} is one NVLink domain of {rest}",)


def read_host(
    args: argparse.Namespace, source: str | None = None
) -> tuple[Topology, tuple[str, ...]]:
    """Return the one host that ``source``, or else this machine or a profile is, and warnings."""
    source = args.fsroot if source is None else source
    if source is not None:
        if args.format is None and describes_fabric(source):
            raise InputError(f"{source}: lists switches, no host; give it as --fabric-file")
        return completed(args, *read_cluster(source, args.format))
    if args.profile:
        return kept(args, load_profile(args.profile)), ()
    return completed(args, *probe_local())


def completed(
    args: argparse.Namespace, topology: Topology, warnings: tuple[str, ...]
) -> tuple[Topology, tuple[str, ...]]:
    """Return the host with what a profile adds, as far as it is kept, and warnings."""
    if args.profile:
        topology = overlay(topology, args.profile)
        warnings = tuple(w for w in warnings if _BY_PROFILE not in w)
    elif any(_BY_PROFILE in w for w in warnings):
        fitting = fitting_profiles(topology)
        names = f"that fit: {', '.join(fitting)}" if fitting else f"are {', '.join(PROFILES)}"
        warnings = (*warnings, f"--profile adds what the file lacks; profiles {names}")
    return kept(args, topology), warnings


def kept(args: argparse.Namespace, topology: Topology) -> Topology:
    """Return the host of the GPUs that are kept, with NICs merged as the arguments say."""
    if args.gpus is not None:
        topology = keep_gpus(topology, parse_gpus(args.gpus))
    if args.cells is not None:
        where = printable_path(args.cells)
        found = read_transports(read_bounded(args.cells, 1 << 24), where)
        topology = split_into_cells(topology, *found.cells())
    return merge_nics(topology, args.merge_nics) if args.merge_nics else topology


def parse_gpus(text: str) -> list[int]:
    """Return the GPU indices that ``text`` lists.

    >>> parse_gpus("0-2,7")
    [0, 1, 2, 7]
    """
    gpus: list[int] = []
    for part in text.split(","):
        match = re.fullmatch(r"(\d{1,4})(?:-(\d{1,4}))?", part.strip())
        if match is None or int(match[2] or match[1]) < int(match[1]):
            raise InputError(f"--gpus {text[:40]!r}: expected indices like 0-3 or 0,2,4")
        gpus += range(int(match[1]), int(match[2] or match[1]) + 1)
    if len(gpus) != len(set(gpus)):
        raise InputError(f"--gpus {text[:40]!r}: lists a GPU twice")
    return gpus


def facts(topology: Topology, warnings: tuple[str, ...]) -> dict[str, object]:
    """Return what ``--json`` says of a topology."""
    return {
        "name": topology.name,
        "ranks": topology.ranks,
        "hosts": len(topology.hosts),
        "signature": signature(topology),
        "links": len(topology.links),
        "assumed_links": sum(link.assumed for link in topology.links),
        "origins": dict(Counter(link.origin for link in topology.links)),
        "warnings": list(warnings),
    }


def describe(topology: Topology) -> str:
    """Return the line that says what a topology is."""
    kinds = Counter(link.kind for link in topology.links)
    links = ", ".join(f"{count} {kind}" for kind, count in sorted(kinds.items()))
    origins = Counter(str(link.origin) for link in topology.links)
    counts = ", ".join(f"{count} {origin}" for origin, count in sorted(origins.items()))
    return (
        f"{topology.name}: {topology.ranks} ranks on {len(topology.hosts)} hosts; links: {links}"
        f" ({counts}); signature {signature(topology)}"
    )
