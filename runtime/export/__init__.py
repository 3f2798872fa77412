"""A table as files that an unmodified runtime loads."""

from typing import TYPE_CHECKING

from tuccl.lazy import make_lazy

if TYPE_CHECKING:
    from tuccl.runtime.export.files import Export, export, export_switch

__all__ = [
    "Export",
    "export",
    "export_switch",
]

make_lazy(__name__)
