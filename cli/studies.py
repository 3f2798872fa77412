"""The study that belongs to a table: the argument that names another, and how it is read."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import TYPE_CHECKING

from tuccl.cli.output import warn
from tuccl.errors import InputError, TucclError
from tuccl.runtime import LookupTable

if TYPE_CHECKING:
    from tuccl.tuning import StoredStudy


def add_study(parser: argparse.ArgumentParser) -> None:
    """Add ``--study``."""
    parser.add_argument(
        "--study",
        metavar="DIR|URL",
        help="the search's record: a study's folder or an Optuna storage "
        "(default: TABLE.study, if there is one)",
    )


def studies_of(where: str | None, folder: Path, table: LookupTable) -> tuple[StoredStudy, ...]:
    """Return the studies of the table in ``folder``, none where there are none.

    Raises:
        InputError: ``where`` was named and cannot be read, or holds no study of this machine.
    """
    from tuccl.tuning import read_studies, study_folder

    if where is not None:
        studies = read_studies(where)
        if of_machine := tuple(study for study in studies if study.signature == table.signature):
            return of_machine
        raise InputError(f"--study: holds no study of machine {table.signature}, the table's")
    beside = study_folder(folder.resolve())
    if table.dialect == "nccl" or not beside.is_dir():
        return ()
    try:
        return read_studies(beside)
    except TucclError as error:
        warn([f"the study is left out: {error}"])
        return ()
