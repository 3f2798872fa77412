"""Preferred links and aligned chunks."""

from __future__ import annotations

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tuccl.errors import InputError
from tuccl.sketches import Sketch
from tuccl.sketches.checks import checked
from tuccl.sketches.size import aligned_chunks, for_size, prefer_links
from tuccl.sketches.sketch import LogicalLink


def square(preferred: set[tuple[int, int]]) -> Sketch:
    sketch = Sketch(
        name="square",
        ranks=4,
        hosts=(0, 0, 0, 0),
        links=tuple(
            LogicalLink(src=src, dst=dst, inter=False, alpha_us=1.0, beta_us_per_mb=40.0)
            for src in range(4)
            for dst in range(4)
            if src != dst
        ),
    )
    return prefer_links(sketch, preferred, 1000)


def test_only_preferred_links_stay_from_their_size_on() -> None:
    ring = {(0, 1), (1, 2), (2, 3), (3, 0)}
    sketch = square(ring)
    assert for_size(sketch, 999) is sketch
    large = checked(for_size(sketch, 1000))
    assert set(large.pairs) == ring
    assert {link.stage for link in large.pruned} == {"size"}
    assert len(large.pruned) == 8


def test_links_stay_where_preferred_ones_do_not_join_the_host() -> None:
    sketch = square({(0, 1), (1, 0), (2, 3), (3, 2)})
    assert for_size(sketch, 1 << 30) is sketch


@given(nbytes=st.integers(1, 1 << 40), nchunks=st.integers(1, 64), power=st.integers(0, 12))
def test_chunks_are_equal_and_aligned_where_they_can_be(
    nbytes: int, nchunks: int, power: int
) -> None:
    align = 1 << power
    count = aligned_chunks(nbytes, nchunks, align)
    assert 1 <= count <= nchunks
    assert nbytes % count == 0
    if nbytes % align == 0 and align >= 16:
        assert nbytes // count % align == 0
        better = range(count + 1, nchunks + 1)
        assert not any(nbytes % more == 0 and nbytes // more % align == 0 for more in better)


@given(lines=st.integers(1, 1 << 20), nchunks=st.integers(1, 64), power=st.integers(4, 12))
def test_alignment_steps_down_by_halves_to_a_line(lines: int, nchunks: int, power: int) -> None:
    nbytes = 16 * lines
    align = math.gcd(nbytes, 1 << power)
    chunk = nbytes // aligned_chunks(nbytes, nchunks, 1 << power)
    assert chunk % align == 0
    assert aligned_chunks(nbytes, nchunks, 1 << power) == aligned_chunks(nbytes, nchunks, align)


@pytest.mark.parametrize("numbers", [(0, 1, 1), (1, 0, 1), (1, 1, 0)])
def test_numbers_below_one_are_refused(numbers: tuple[int, int, int]) -> None:
    with pytest.raises(InputError, match="at least 1"):
        aligned_chunks(*numbers)
