"""Pictures of machines as SVG: one host, the fabric between hosts."""

from typing import TYPE_CHECKING

from tuccl.lazy import make_lazy

if TYPE_CHECKING:
    from tuccl.topology.pictures.machine import machine_svg

__all__ = ["machine_svg"]

make_lazy(__name__)
