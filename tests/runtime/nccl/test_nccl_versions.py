"""NCCL's versions: which are of one kind, and where their constants come from."""

from __future__ import annotations

import pytest

from tuccl.errors import InputError
from tuccl.runtime.nccl.constants import tuning_constants
from tuccl.runtime.nccl.versions import (
    NCCL_VERSION,
    nccl_caveats,
    nccl_group,
    nccl_versions,
)


@pytest.mark.parametrize(
    ("version", "group"),
    [
        ("2.4.8-1", "2.4"),
        ("2.9.9", "2.8"),
        ("v2.12.12-1", "2.12"),
        ("2.13", "2.12"),
        ("2.16.5", "2.15"),
        ("2.18.1", "2.18.1"),
        ("2.18.5", "2.18"),
        ("2.18", "2.18"),
        ("2.20.3", "2.20"),
        ("2.20", "2.20"),
        ("2.21.5+cuda12.4", "2.21"),
        ("2.24.3", "2.23"),
        ("2.26.2", "2.25"),
        ("2.27.3", "2.27"),
        ("2.28.9-1", "2.28"),
        ("2.29.2", "2.29"),
        ("2.30.7", "2.30"),
        ("2.32.3", "2.30"),
        ("newest", "2.30"),
    ],
)
def test_versions_of_equal_constants_are_one_group(version: str, group: str) -> None:
    assert nccl_group(version) == group
    assert nccl_group(group) == group


def test_every_group_has_constants_with_their_source() -> None:
    assert tuple(tuning_constants()) == nccl_versions()
    assert all("nccl" in c.source for c in tuning_constants().values())
    assert nccl_group(NCCL_VERSION) in tuning_constants()


@pytest.mark.parametrize(
    "version", ["1.0", "2.3.7", "2.33", "3.0", "", "new", "2", "2.19\n", "٢.١٩"]
)
def test_unknown_versions_are_refused_with_those_known(version: str) -> None:
    with pytest.raises(InputError, match=r"2\.4 to 2\.32"):
        nccl_group(version)


def test_what_is_not_modelled_of_a_version_is_said() -> None:
    assert not nccl_caveats("2.26.5")
    [windows] = nccl_caveats("2.29")
    assert "ncclCommWindowRegister" in windows
    assert any("taken as 2.30" in text and "Rubin" in text for text in nccl_caveats("2.32"))
