"""Isolated ranks of a host: each cell is a host everywhere, and one cell is the host as it was."""

import pytest

from tuccl.errors import InputError
from tuccl.synth import Collective, bound
from tuccl.topology import (
    all_paths,
    join,
    load_profile,
    signature,
    split_into_cells,
)

HOST = load_profile("v100x4")


def test_one_cell_is_the_host_as_it_was() -> None:
    assert split_into_cells(HOST, [(0, 1, 2, 3)], 1.0, 20.0) is HOST


@pytest.mark.parametrize("cells", [[(0, 1), (2, 3)], [(0, 2), (1, 3)], [(0,), (1,), (2,), (3,)]])
def test_cells_are_hosts_whose_ranks_keep_their_numbers(cells: list[tuple[int, ...]]) -> None:
    split = split_into_cells(HOST, cells, 1.5, 20.0)
    assert [split.gpus_of(host) for host in split.hosts] == cells
    assert [gpu.id.split("/")[1] for gpu in split.gpus] == [gpu.id for gpu in HOST.gpus]
    for (a, b), path in all_paths(split).items():
        together = any({a, b} <= {*cell} for cell in cells)
        assert path.crosses_network != together
        if not together:
            assert path.bandwidth == 1.5
            assert path.latency == pytest.approx(20.0)
    assert signature(split) != signature(HOST)
    assert signature(split) == signature(split_into_cells(HOST, cells, 0.7, 35.0))


def test_cells_share_their_port_and_the_bound_sees_it() -> None:
    call = Collective("allgather", 4)
    paired = bound(split_into_cells(HOST, [(0, 1), (2, 3)], 1.5, 20.0), call)
    assert paired.time_us(6 << 20) >= 3 * (1 << 20) / 1.5e3
    assert bound(HOST, call).time_us(6 << 20) < paired.time_us(6 << 20)


def test_what_cannot_be_split_is_refused() -> None:
    for cells in ([(0, 1), (2,)], [(0, 1), (1, 2, 3)], [(0, 1, 2, 3, 4)]):
        with pytest.raises(InputError, match="each of 0 to 3 once"):
            split_into_cells(HOST, cells, 1.0, 1.0)
    with pytest.raises(InputError, match="2 hosts"):
        split_into_cells(join(HOST, 2), [range(8)], 1.0, 1.0)
