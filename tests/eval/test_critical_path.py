"""The critical path of a run adds up to its time, and names what would make it faster."""

from __future__ import annotations

import math

import msgspec
import pytest

from tests.eval.conftest import RUNS, ring_on
from tuccl.eval import critical_path, path_text
from tuccl.simulation import TRACE_CAUSES
from tuccl.topology import join, load_profile

MIB = 1 << 20


@pytest.mark.parametrize("name", RUNS)
def test_the_parts_add_up_and_every_wait_is_traced_to_its_end(name: str) -> None:
    run = RUNS[name]()
    path = critical_path(run)
    assert math.fsum(part.us for part in path.parts) == pytest.approx(path.time_us, rel=1e-9)
    assert path.time_us == run.trace.result.time_us
    assert not {part.what for part in path.parts} & set(TRACE_CAUSES)
    assert all(part.us > 0 and part.spans > 0 for part in path.parts)
    assert [part.us for part in path.parts] == sorted((p.us for p in path.parts), reverse=True)
    assert "simulated" in path_text(path)


@pytest.mark.parametrize("nbytes", [64 << 10, 4 * MIB, 64 * MIB])
@pytest.mark.parametrize("kind", ["network", "nvlink"])
def test_it_says_what_faster_links_would_gain(kind: str, nbytes: int) -> None:
    """Links faster by a thousandth gain a thousandth of their part while the chain is the same."""
    cluster = join(load_profile("v100x4"), 2)
    by = 1.001
    faster = msgspec.structs.replace(
        cluster,
        links=tuple(
            msgspec.structs.replace(link, bandwidth=link.bandwidth * by)
            if link.kind == kind
            else link
            for link in cluster.links
        ),
    )
    before = ring_on(2, "Simple", nbytes, cluster=cluster)
    after = ring_on(2, "Simple", nbytes, cluster=faster)
    kinds = {resource.name: resource.kind for resource in before.network.resources}
    part = math.fsum(
        p.us
        for p in critical_path(before).parts
        if p.what.startswith("full link ") and kinds[p.what.removeprefix("full link ")] == kind
    )
    gained = before.trace.result.time_us - after.trace.result.time_us
    assert gained == pytest.approx(part * (1 - 1 / by), rel=0.05, abs=1e-9)


def test_passes_that_are_not_recorded_are_a_part_of_their_own() -> None:
    parts = {part.what for part in critical_path(ring_on(2, "LL", 16 * MIB, passes=2)).parts}
    assert "passes that are not recorded" in parts
