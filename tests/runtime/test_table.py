"""Tables on disk: what is saved comes back, anything else is refused, a crash breaks nothing."""

from __future__ import annotations

import os
import random
import shutil
from collections.abc import Callable
from pathlib import Path

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tuccl._native import to_xml
from tuccl.errors import InputError
from tuccl.runtime import swap
from tuccl.runtime.lookup import LookupTable
from tuccl.runtime.table import (
    check_target,
    load_table,
    open_table,
    program_file,
    save_table,
)
from tuccl.runtime.table_text import table_text

from .conftest import mesh, ring_allgather, table_of, usual_table


def contents(folder: Path) -> dict[str, bytes]:
    return {
        path.relative_to(folder).as_posix(): path.read_bytes()
        for path in sorted(folder.rglob("*"))
        if path.is_file()
    }
