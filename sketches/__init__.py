"""Sketches: links and rules for synthesizers, the stages that prune them, TACCL's files."""

from typing import TYPE_CHECKING

from tuccl.lazy import make_lazy

if TYPE_CHECKING:
    from tuccl.sketches.binding import bind
    from tuccl.sketches.candidates import candidate_sketches
    from tuccl.sketches.congestion import prune_congested
    from tuccl.sketches.files import load_sketch, save_sketches
    from tuccl.sketches.full_mesh import full_mesh
    from tuccl.sketches.parameters import SketchSpace
    from tuccl.sketches.picture import sketch_svg
    from tuccl.sketches.sketch import Sketch

__all__ = [
    "Sketch",
    "SketchSpace",
    "bind",
    "candidate_sketches",
    "full_mesh",
    "load_sketch",
    "prune_congested",
    "save_sketches",
    "sketch_svg",
]

make_lazy(__name__)
