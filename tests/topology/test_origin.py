"""Where a link's rate is from, and what of measured rates counts as drift."""

from __future__ import annotations

import msgspec
import pytest
from msgspec.structs import replace

from tuccl.errors import InputError
from tuccl.topology import (
    Link,
    Topology,
    decode_topology,
    differences,
    encode_topology,
    join,
    keep_gpus,
    load_profile,
    signature,
)
from tuccl.topology.show import matrix


def cluster(gbs: float = 1.0, spread: float = 0.0) -> Topology:
    """Return two hosts whose network was measured on one side and inferred on the other."""
    joined = join(keep_gpus(load_profile("ndv2"), [0, 1]), 2)

    def probed(link: Link) -> Link:
        if link.kind != "network":
            return link
        measured = link.src.startswith("n0")
        return msgspec.structs.replace(
            link,
            bandwidth=gbs,
            assumed=False,
            measured=gbs if measured else None,
            spread_gbs=spread if measured else None,
            inferred_from="" if measured else "n0/nic0 leaf0",
        )

    return msgspec.structs.replace(joined, links=tuple(probed(link) for link in joined.links))


def test_each_origin_is_reported_and_kept_in_the_file() -> None:
    t = cluster()
    origins = {link.src: link.origin for link in t.links if link.kind == "network"}
    assert origins == {"n0/nic0": "measured", "n1/nic0": "inferred"}
    assert {link.origin for link in t.links} >= {"assumed", "measured", "inferred"}
    assert decode_topology(encode_topology(t)) == t
    assert "inferred" in matrix(t)
    assert "rate of n0/nic0 leaf0" in matrix(t)


def test_an_old_file_still_reads() -> None:
    old = b"""{"format": "tuccl-topology/1", "name": "pair", "nodes": [
      {"id": "a", "kind": "gpu", "rank": 0}, {"id": "b", "kind": "gpu", "rank": 1}], "links": [
      {"src": "a", "dst": "b", "kind": "nvlink", "bandwidth": 25, "latency": 1, "measured": 22},
      {"src": "b", "dst": "a", "kind": "pcie", "bandwidth": 9, "latency": 1, "assumed": true}]}"""
    assert [link.origin for link in decode_topology(old).links] == ["measured", "assumed"]
    with pytest.raises(InputError, match="spread_us"):
        decode_topology(old.replace(b'"measured": 22', b'"spread_us": -1'))


def test_measured_rates_of_a_network_are_no_part_of_the_signature() -> None:
    assert signature(cluster(1.0)) == signature(cluster(1.07))
    assert signature(cluster()) != signature(join(keep_gpus(load_profile("ndv2"), [0, 1]), 2))


def test_only_a_change_beyond_noise_is_drift() -> None:
    assert differences(cluster(1.0), cluster(1.07)) == ()
    assert differences(cluster(1.0, 0.1), cluster(1.18, 0.1)) == ()
    (line,) = differences(cluster(1.0, 0.01), cluster(0.8, 0.02))
    assert "n0/nic0" in line
    assert "0.8 now" in line


def test_without_a_new_measurement_hosts_are_compared_alone() -> None:
    """A cluster read again is the one that was measured, unless its hosts changed."""
    host = load_profile("ndv2")
    read, other = join(host, 2), join(keep_gpus(host, [0, 1, 2, 3, 4, 5, 7, 6]), 2)
    measured = replace(
        read,
        links=tuple(
            replace(x, bandwidth=9.0, measured=9.0) if x.kind == "network" else x
            for x in read.links
        ),
    )
    assert signature(read) != signature(measured)
    assert differences(measured, read) == differences(read, measured) == ()
    assert "host n0: rank" in differences(measured, other)[0]
    assert "16 GPUs before, 8 now" in differences(measured, host)[0]
