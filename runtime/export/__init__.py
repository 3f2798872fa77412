"""A table as files that an unmodified runtime loads."""

from tuccl.runtime.export.export import Export, export_program, export_switch, export_table

__all__ = [
    "Export",
    "export_program",
    "export_switch",
    "export_table",
]
