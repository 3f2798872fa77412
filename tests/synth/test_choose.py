"""The choice among candidates: what ends it early, and what is kept then."""

from __future__ import annotations

import signal

import pytest

from tuccl._native import Knobs
from tuccl.sketches import full_mesh
from tuccl.synth import Candidates, Collective, Synthesized, Target, synthesize_best
from tuccl.topology import load_profile, machine_of

T = load_profile("v100x4")


def chosen(interrupted_at: int) -> tuple[Synthesized, ...]:
    """Return what is found where an interrupt comes at a candidate, given by its number."""

    def interrupt(done: int, total: int, what: str) -> None:
        if done == interrupted_at:
            signal.raise_signal(signal.SIGINT)

    return synthesize_best(
        Target(T, Collective("allgather", 4), 1 << 20, machine_of(T)),
        Candidates([full_mesh(T)], [Knobs("Simple", 1, 512)], ("ring", "allpairs", "greedy"), (1,)),
        progress=interrupt,
    )


def test_an_interrupt_keeps_what_was_found() -> None:
    assert {found.method for found in chosen(-1)} == {"ring", "allpairs", "greedy"}
    assert {found.method for found in chosen(2)} == {"ring", "allpairs"}


def test_an_interrupt_before_anything_was_found_is_one() -> None:
    with pytest.raises(KeyboardInterrupt):
        chosen(0)
