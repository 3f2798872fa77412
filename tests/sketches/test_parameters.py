"""Sketches by their parameters: names, the axes of a machine, what each parameter prunes."""

from __future__ import annotations

import itertools

import pytest

from tuccl.errors import InputError
from tuccl.sketches import SketchSpace, candidate_sketches
from tuccl.sketches.parameters import SketchParameters
from tuccl.topology import Topology, join, load_profile

SIZE = 1 << 20


def two_hosts() -> Topology:
    return join(load_profile("dgx-1v"), 2)


def without_nvlink(topology: Topology) -> Topology:
    links = tuple(link for link in topology.links if link.kind != "nvlink")
    return Topology("PCIe only", topology.nodes, links)


@pytest.mark.parametrize("profile", ["v100x4", "dgx-1v", "dgx-2"])
@pytest.mark.parametrize("hosts", [1, 2])
def test_a_name_makes_the_same_sketch_anew(profile: str, hosts: int) -> None:
    topology = join(load_profile(profile), hosts)
    for sketch in candidate_sketches(topology, "allreduce", SIZE):
        assert sketch.name in SketchSpace(topology, SIZE)
        assert SketchSpace(topology, SIZE).sketch(sketch.name) == sketch


def test_every_combination_has_one_name() -> None:
    space = SketchSpace(two_hosts(), SIZE)
    names = set()
    for values in itertools.product(*space.axes.values()):
        given = SketchParameters(**dict(zip(space.axes, values, strict=True)))
        name = space.normal(given).name
        assert name in space
        assert SketchParameters.of(name) == space.normal(given)
        names.add(name)
    assert {"full-mesh", "paired", "one", "split-free", "mesh-inside-1-nvlink"} <= names


def test_parameters_prune_by_the_stage_that_they_are_of() -> None:
    space = SketchSpace(two_hosts(), SIZE)
    one, free = space.sketch("one"), space.sketch("one-free")
    assert one.pairs == free.pairs
    assert one.relays
    assert not free.relays
    inside = space.sketch("one-inside-1")
    gone = one.pairs - inside.pairs
    assert gone
    assert all(space.mesh.hosts[src] == space.mesh.hosts[dst] for src, dst in gone)
    assert {p.stage for p in inside.pruned if (p.src, p.dst) in gone} == {"congestion"}
    nvlink = space.sketch("one-nvlink")
    assert {p.stage for p in nvlink.pruned} == {"size", "grouping", "transformation"}


def test_a_solver_has_rotations_and_the_order_at_relays_to_choose() -> None:
    space, quick = (SketchSpace(two_hosts(), SIZE, solver) for solver in (True, False))
    assert space.axes["symmetry"] == (None, 0, 1)
    one, less = space.sketch("one"), space.sketch("one-own-symmetry-1")
    assert (one.own_chunks_first, less.own_chunks_first) == (False, True)
    assert less.symmetry == one.symmetry[:1] != one.symmetry
    assert {"own", "symmetry"}.isdisjoint(quick.axes)
    assert "one-own" not in quick


def test_a_solver_has_taccls_switch_strategies_to_choose() -> None:
    behind_switches = join(load_profile("dgx-a100"), 2)
    space, quick = (SketchSpace(behind_switches, SIZE, solver) for solver in (True, False))
    assert "few" not in SketchSpace(two_hosts(), SIZE, solver=True).axes
    assert space.sketch("one").switch_strategy == ()
    assert space.sketch("one-few").switch_strategy == ("uc-min", "uc-min")
    assert space.sketch("one-many").switch_strategy == ("uc-max", "uc-max")
    assert "one-few-many" not in space
    assert {"few", "many"}.isdisjoint(quick.axes)


def test_a_machine_has_the_axes_that_it_has_a_choice_in() -> None:
    assert SketchSpace(load_profile("v100x4"), SIZE).axes == {}
    assert "nvlink" in SketchSpace(two_hosts(), SIZE).axes
    assert "nvlink" not in SketchSpace(without_nvlink(two_hosts()), SIZE).axes
    one_host = SketchSpace(load_profile("dgx-1v"), SIZE)
    assert {"bound", "connections", "split", "free", "inside"}.isdisjoint(one_host.axes)


@pytest.mark.parametrize(
    "name",
    [
        "ones",
        "mesh-",
        "pairs-",
        "one-congestion-1.2.3",
        "one-inside-.",
        "x" * 99,
        "pairs-1",
        "one-split",
    ],
)
def test_other_names_are_refused(name: str) -> None:
    space = SketchSpace(two_hosts(), SIZE)
    assert name not in space
    with pytest.raises(InputError, match="expected a name like"):
        space.sketch(name)


def test_a_lone_host_binds_nothing() -> None:
    with pytest.raises(InputError, match="no NICs to bind"):
        SketchSpace(load_profile("dgx-1v"), SIZE).sketch("paired")


def test_many_ranks_have_rails_for_a_mesh() -> None:
    space = SketchSpace(join(load_profile("dgx-2"), 9), SIZE)
    rails, few = space.sketch("rails"), space.sketch("one-free")
    assert space.mesh.pairs == rails.pairs and rails.name == "rails"
    assert set(few.pairs) < set(rails.pairs)
    senders = {link.src for link in few.links if link.inter}
    assert len(senders) == 72 and not few.relays and few.symmetry == rails.symmetry
    with pytest.raises(InputError, match="144 ranks have more links than"):
        space.sketch("full-mesh")


def test_rails_of_many_ranks_are_pruned_too() -> None:
    for name, sketches in (
        ("dgx-h100", ["rails"]),
        ("p4de", ["rails"]),
        ("dgx-1v", ["one-free-nvlink", "mesh-nvlink", "rails"]),
    ):
        found = candidate_sketches(join(load_profile(name), 17), "allgather", SIZE)
        assert [sketch.name for sketch in found] == sketches
