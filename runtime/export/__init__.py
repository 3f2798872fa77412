"""A table as files that an unmodified runtime loads."""

from typing import TYPE_CHECKING

from tuccl.lazy import make_lazy

if TYPE_CHECKING:
    from tuccl.runtime.export.export import Export, export_program, export_switch, export_table

__all__ = [
    "Export",
    "export_program",
    "export_switch",
    "export_table",
]

make_lazy(__name__)
