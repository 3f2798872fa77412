"""The picture of a sketch shows what was pruned and what stayed."""

from __future__ import annotations

import xml.etree.ElementTree as ET

import pytest

from tuccl.errors import InputError
from tuccl.sketches import candidate_sketches, sketch_svg
from tuccl.topology import join, load_profile

PATH = "{http://www.w3.org/2000/svg}path"


@pytest.mark.parametrize("hosts", [1, 2])
def test_before_and_after(hosts: int) -> None:
    topology = join(load_profile("dgx-1v"), hosts)
    sketch = candidate_sketches(topology, "allgather", 16 << 20)[0]
    svg = ET.fromstring(sketch_svg(sketch, topology))
    pairs = {frozenset(pair) for pair in sketch.pairs}
    gone = {frozenset((link.src, link.dst)) for link in sketch.pruned}
    drawn = [path.get("class") for path in svg.iter(PATH)]
    # Twice the links that stayed, once those that went; and a line of each in the legend.
    assert drawn.count("logical") == 2 * len(pairs) + 1
    assert drawn.count("pruned") == len(gone) + 1
    text = "".join(svg.itertext())
    assert f"before: {topology.ranks * (topology.ranks - 1)} links" in text
    assert f"after: {len(sketch.links)} links" in text


def test_large_clusters_say_how_many_hosts_are_drawn() -> None:
    topology = join(load_profile("v100x4"), 6)
    sketch = candidate_sketches(topology, "allgather", 1 << 20)[0]
    assert "4 of 6 hosts drawn" in sketch_svg(sketch, topology)


def test_a_sketch_of_another_machine_is_refused() -> None:
    sketch = candidate_sketches(load_profile("v100x4"), "allgather", 1 << 20)[0]
    with pytest.raises(InputError, match="is of 4 ranks, topology 'dgx-1v' has 8"):
        sketch_svg(sketch, load_profile("dgx-1v"))
