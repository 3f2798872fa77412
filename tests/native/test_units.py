import itertools

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tuccl.errors import InputError
from tuccl.units import format_bytes, parse_range, parse_size


@given(st.integers(min_value=1, max_value=1 << 50))
def test_a_printed_size_reads_back(nbytes: int) -> None:
    assert parse_size(format_bytes(nbytes)) == nbytes


@given(st.integers(1, 1 << 20), st.integers(2, 64), st.integers(0, 6))
def test_a_range_holds_its_ends_and_grows_by_the_factor(low: int, factor: int, power: int) -> None:
    sizes = parse_range(f"{low}:{low * factor**power}:x{factor}")
    assert sizes[0] == low
    assert sizes[-1] == low * factor**power
    assert all(b == a * factor for a, b in itertools.pairwise(sizes))


@pytest.mark.parametrize("text", ["", "0", "-1", "1.5K", "K", "1X", "1 K", "64MM", "٣"])
def test_what_is_no_size_is_refused(text: str) -> None:
    with pytest.raises(InputError, match="expected a whole number above 0"):
        parse_size(text)


@pytest.mark.parametrize("text", ["1M:1K", "1:2:3:4", "1K:1M:x1", "1K:1M:x0", "1:1G:1", ":", "1K:"])
def test_what_is_no_range_is_refused(text: str) -> None:
    with pytest.raises(InputError):
        parse_range(text)


@given(st.text(max_size=20))
def test_any_text_is_sizes_or_an_input_error(text: str) -> None:
    try:
        sizes = parse_range(text)
    except InputError as error:
        assert "\n" not in str(error).replace(repr(text), "")
    else:
        assert sizes == sorted(sizes)
        assert sizes[0] > 0
