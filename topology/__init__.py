"""Machines: GPUs, NICs, bridges and switches, and the paths between them."""

from typing import TYPE_CHECKING

from tuccl.lazy import make_lazy

if TYPE_CHECKING:
    from tuccl.topology.cells import split_into_cells
    from tuccl.topology.clusters import read_cluster
    from tuccl.topology.cross_flows import flows
    from tuccl.topology.cross_traffic import CrossTraffic, load_cross_traffic, residual
    from tuccl.topology.drift import differences
    from tuccl.topology.fabric import join, join_hosts
    from tuccl.topology.files import (
        decode_topology,
        encode_topology,
        load_topology,
        save_topology,
    )
    from tuccl.topology.graph import Link, Node, Topology
    from tuccl.topology.machine import (
        Constant,
        MachineFile,
        encode_machine,
        load_machine,
        machine_class,
        machine_of,
        read_machine,
    )
    from tuccl.topology.machines import profile, read_topology
    from tuccl.topology.merge import merge_nics
    from tuccl.topology.network import network
    from tuccl.topology.nics import own_nics
    from tuccl.topology.paths import all_paths, path
    from tuccl.topology.pictures import machine_svg
    from tuccl.topology.probe import probe_local
    from tuccl.topology.profiles import PROFILES, SHAPES, load_profile, overlay
    from tuccl.topology.readers.fabrics import read_fabric
    from tuccl.topology.relays import Path, relay_path
    from tuccl.topology.servers import process_gpus
    from tuccl.topology.signature import signature
    from tuccl.topology.subset import keep_gpus
    from tuccl.topology.switches import Fabric

__all__ = [
    "PROFILES",
    "SHAPES",
    "Constant",
    "CrossTraffic",
    "Fabric",
    "Link",
    "MachineFile",
    "Node",
    "Path",
    "Topology",
    "all_paths",
    "decode_topology",
    "differences",
    "encode_machine",
    "encode_topology",
    "flows",
    "join",
    "join_hosts",
    "keep_gpus",
    "load_cross_traffic",
    "load_machine",
    "load_profile",
    "load_topology",
    "machine_class",
    "machine_of",
    "machine_svg",
    "merge_nics",
    "network",
    "overlay",
    "own_nics",
    "path",
    "probe_local",
    "process_gpus",
    "profile",
    "read_cluster",
    "read_fabric",
    "read_machine",
    "read_topology",
    "relay_path",
    "residual",
    "save_topology",
    "signature",
    "split_into_cells",
]

make_lazy(__name__)
