"""Machines: GPUs, NICs, bridges and switches, and the paths between them."""

from typing import TYPE_CHECKING

from tuccl.lazy import make_lazy

if TYPE_CHECKING:
    from tuccl.topology.cabling import host_order
    from tuccl.topology.clusters import read_cluster
    from tuccl.topology.drift import differences
    from tuccl.topology.fabric import FABRICS, join, join_hosts
    from tuccl.topology.files import (
        decode_topology,
        encode_topology,
        load_topology,
        save_topology,
    )
    from tuccl.topology.graph import FixedRoute, Link, Node, Topology
    from tuccl.topology.machine import (
        MACHINES,
        Constant,
        MachineFile,
        class_name_of,
        encode_machine,
        interpreter_machine_of,
        load_machine,
        machine_class,
        machine_of,
        plan_machine_of,
        read_machine,
    )
    from tuccl.topology.machines import profile, read_topology
    from tuccl.topology.merge import MERGE_LEVELS, merge_nics
    from tuccl.topology.network import cluster_network, network, used_pairs
    from tuccl.topology.nics import bound_nics, nearest_nics, own_nics
    from tuccl.topology.paths import all_paths, channel_paths, path
    from tuccl.topology.pictures import machine_svg
    from tuccl.topology.probe import probe_local
    from tuccl.topology.profiles import PROFILES, SHAPES, load_profile, overlay
    from tuccl.topology.readers.fabrics import FABRIC_READERS, describes_fabric, read_fabric
    from tuccl.topology.readers.hostlist import hostlist
    from tuccl.topology.readers.nccl_xml import decode_nccl_xml, read_nccl_xml
    from tuccl.topology.readers.registry import HOST_READERS
    from tuccl.topology.relays import Hop, Path, relay_path
    from tuccl.topology.servers import process_gpus, servers
    from tuccl.topology.shapes import nvlink_domain, torus
    from tuccl.topology.show import matrix, path_class
    from tuccl.topology.signature import signature
    from tuccl.topology.smi import smi_matrix
    from tuccl.topology.subset import keep_gpus
    from tuccl.topology.switches import Adapter, Fabric, Trunk, united

__all__ = [
    "FABRICS",
    "FABRIC_READERS",
    "HOST_READERS",
    "MACHINES",
    "MERGE_LEVELS",
    "PROFILES",
    "SHAPES",
    "Adapter",
    "Constant",
    "Fabric",
    "FixedRoute",
    "Hop",
    "Link",
    "MachineFile",
    "Node",
    "Path",
    "Topology",
    "Trunk",
    "all_paths",
    "bound_nics",
    "channel_paths",
    "class_name_of",
    "cluster_network",
    "decode_nccl_xml",
    "decode_topology",
    "describes_fabric",
    "differences",
    "encode_machine",
    "encode_topology",
    "host_order",
    "hostlist",
    "interpreter_machine_of",
    "join",
    "join_hosts",
    "keep_gpus",
    "load_machine",
    "load_profile",
    "load_topology",
    "machine_class",
    "machine_of",
    "machine_svg",
    "matrix",
    "merge_nics",
    "nearest_nics",
    "network",
    "nvlink_domain",
    "overlay",
    "own_nics",
    "path",
    "path_class",
    "plan_machine_of",
    "probe_local",
    "process_gpus",
    "profile",
    "read_cluster",
    "read_fabric",
    "read_machine",
    "read_nccl_xml",
    "read_topology",
    "relay_path",
    "save_topology",
    "servers",
    "signature",
    "smi_matrix",
    "torus",
    "united",
    "used_pairs",
]

make_lazy(__name__)
