"""Known machines, as data files with the source of each number, and filling a bare file by one."""

from __future__ import annotations

import re
from importlib.resources import files

import msgspec

from tuccl.errors import InputError
from tuccl.topology.files import decode_topology
from tuccl.topology.graph import Link, Node, Topology, quoted
from tuccl.topology.models import nvlink_gbs
from tuccl.topology.shapes import nvlink_domain, torus

PROFILES = (
    "v100x4",
    "dgx-1v",
    "ndv2",
    "dgx-2",
    "dgx-a100",
    "ndv4",
    "dgx-h100",
    "ndv5",
    "a100x8-roce",
    "dgx-h200",
    "dgx-b200",
    "gb200",
    "mi300x",
    "mi250x",
    "rtx2080tix4",
    "rtx4090x4",
    "l40sx8",
    "p5",
    "p4de",
    "oci-h100",
)

SHAPES = ("gb200-nvlN", "torus-XxY", "torus-XxYxZ", "mesh-XxY", "mesh-XxYxZ")
"""Names with numbers in place of the capitals; ``-nvlN`` takes any profile with an NVSwitch."""

_DOMAIN = re.compile(r"(.{1,60})-nvl([0-9]{1,4})")
_GRID = re.compile(r"(torus|mesh)-([0-9]{1,4}(?:x[0-9]{1,4}){1,2})")


def load_profile(name: str) -> Topology:
    """Return one host of the known machine ``name``, or what `SHAPES` stand for.

    >>> load_profile("dgx-1v").ranks, load_profile("gb200-nvl72").ranks
    (8, 72)
    >>> load_profile("torus-4x4x4").ranks
    64

    Raises:
        InputError: there is no such profile.
    """
    if grid := _GRID.fullmatch(name):
        return torus([int(size) for size in grid[2].split("x")], wrap=grid[1] == "torus")
    if domain := _DOMAIN.fullmatch(name):
        tray = load_profile(domain[1])
        trays, rest = divmod(int(domain[2]), tray.ranks)
        if rest:
            raise InputError(f"profile {quoted(name)}: expected a multiple of {tray.ranks} GPUs")
        return nvlink_domain(tray, trays)
    if name not in PROFILES:
        choices = ", ".join((*PROFILES, *SHAPES))
        raise InputError(f"profile {quoted(name)}: not known; choose one of {choices}")
    data = files("tuccl.topology").joinpath("profiles", f"{name}.json").read_bytes()
    return decode_topology(data, f"profiles/{name}.json")


def fitting_profiles(topology: Topology) -> tuple[str, ...]:
    """Return the profiles that may fill the host ``topology``: as many GPUs, of no other model.

    >>> fitting_profiles(load_profile("dgx-a100"))[:2]
    ('dgx-a100', 'ndv4')
    """
    families = {_family(gpu.model) for gpu in topology.gpus} - {""}
    profiles = ((name, load_profile(name)) for name in PROFILES)
    return tuple(
        name
        for name, profile in profiles
        if profile.ranks == topology.ranks
        and families <= {_family(gpu.model) for gpu in profile.gpus}
    )


def overlay(topology: Topology, profile_name: str) -> Topology:
    """Return the host ``topology`` with what it lacks and the profile knows.

    GPUs match by rank. The profile adds NVLink (unless ``topology`` has some), models and the
    port rates of NICs. PCIe stays, but where no GPU's model is known, links whose rate was assumed
    take the profile's. Every such link is marked assumed and names the profile.

    Raises:
        InputError: the profile has another number or kind of GPUs, or ``topology`` is a cluster.
    """
    profile = load_profile(profile_name)
    _check_match(topology, profile)
    nodes = [_filled(node, profile, topology) for node in topology.nodes]
    wired = any(link.kind in ("nvlink", "xgmi") for link in topology.links)
    nodes += () if wired else _switches(topology, profile)
    links = () if wired else _nvlinks(topology, profile)
    links_read = [_rated(link, topology, profile) for link in topology.links]
    return msgspec.structs.replace(topology, nodes=tuple(nodes), links=(*links_read, *links))


def _rated(link: Link, topology: Topology, profile: Topology) -> Link:
    """Return the link, with the profile's rate where GPUs or CPUs of unknown model left it open."""
    if not link.assumed or any(gpu.model for gpu in topology.gpus):
        return link
    bandwidth = 0.0
    if link.kind == "nvlink":
        # How many links there are was read, not what one carries.
        bandwidth = link.bandwidth * nvlink_gbs(profile.gpus[0].model) / nvlink_gbs(None)
    elif link.kind == "xgmi":
        ranks = {topology.node(end).rank for end in (link.src, link.dst)}
        bandwidth = sum(
            other.bandwidth
            for other in profile.links
            if {profile.node(end).rank for end in (other.src, other.dst)} == ranks
        )
    elif link.kind == "pcie" or topology.node(link.src).model is None:
        first = profile.gpus[0].id
        bandwidth = next(
            (
                other.bandwidth
                for other in profile.links
                if other.kind == link.kind
                and (link.kind != "pcie" or first in (other.src, other.dst))
            ),
            0.0,
        )
    if not bandwidth:
        return link
    source = f"{link.source}; rate of profile {profile.name}"
    return msgspec.structs.replace(link, bandwidth=bandwidth, source=source)


def _check_match(topology: Topology, profile: Topology) -> None:
    if len(topology.hosts) != 1 or any(node.kind == "switch" for node in topology.nodes):
        raise InputError(
            f"topology {quoted(topology.name)} is a cluster; a profile fills one host: overlay it, "
            "then join"
        )
    if topology.ranks != profile.ranks:
        raise InputError(
            f"topology {quoted(topology.name)} has {topology.ranks} GPUs, profile {profile.name} "
            f"has {profile.ranks}; choose another profile"
        )
    for gpu, profile_gpu in zip(topology.gpus, profile.gpus, strict=True):
        family, expected = _family(gpu.model), _family(profile_gpu.model)
        if family and family != expected:
            raise InputError(
                f"GPU {quoted(gpu.id)} of {quoted(topology.name)} is a {gpu.model}, profile "
                f"{profile.name} has a {profile_gpu.model}; choose another profile"
            )


def _family(model: str | None) -> str:
    """Return ``A100`` of ``A100-SXM4-40GB``; nothing where only an architecture is known."""
    return "" if model is None or model.startswith(("sm_", "gfx")) else model.split("-")[0]


def _filled(node: Node, profile: Topology, topology: Topology) -> Node:
    if node.kind == "gpu" and node.rank is not None and not _family(node.model):
        return msgspec.structs.replace(node, model=profile.gpus[node.rank].model)
    if node.kind != "nic":
        return node
    nics = [nic.id for nic in topology.nodes if nic.kind == "nic"]
    profile_nics = [nic for nic in profile.nodes if nic.kind == "nic"]
    profile_nic = profile_nics[min(nics.index(node.id), len(profile_nics) - 1)]
    return msgspec.structs.replace(
        node, model=node.model or profile_nic.model, port_gbs=node.port_gbs or profile_nic.port_gbs
    )


def _switches(topology: Topology, profile: Topology) -> list[Node]:
    host = topology.gpus[0].host
    switches = [node for node in profile.nodes if node.kind == "nvswitch"]
    return [msgspec.structs.replace(node, host=host) for node in switches]


def _nvlinks(topology: Topology, profile: Topology) -> list[Link]:
    ids = {
        profile_gpu.id: gpu.id for gpu, profile_gpu in zip(topology.gpus, profile.gpus, strict=True)
    }
    links = []
    for link in profile.links:
        if link.kind in ("nvlink", "xgmi"):
            source = f"assumed from profile {profile.name}: {link.source}"
            src, dst = ids.get(link.src, link.src), ids.get(link.dst, link.dst)
            links.append(
                msgspec.structs.replace(link, src=src, dst=dst, assumed=True, source=source)
            )
    return links
