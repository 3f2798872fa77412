"""Pictures of machines as SVG: one host, the fabric between hosts."""

from tuccl.topology.pictures.machine import machine_svg

__all__ = ["machine_svg"]
