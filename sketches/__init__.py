"""Sketches: links and rules for synthesizers, the stages that prune them, TACCL's files."""

from typing import TYPE_CHECKING

from tuccl.lazy import make_lazy

if TYPE_CHECKING:
    from tuccl.sketches.binding import bind, closest_nics
    from tuccl.sketches.candidates import candidate_sketches
    from tuccl.sketches.checks import checked
    from tuccl.sketches.congestion import congestion_scores, prune_congested, with_congestion
    from tuccl.sketches.files import (
        decode_sketch,
        encode_sketch,
        load_sketch,
        save_sketch,
        save_sketches,
    )
    from tuccl.sketches.full_mesh import full_mesh
    from tuccl.sketches.grouping import Grouping, group
    from tuccl.sketches.picture import sketch_svg
    from tuccl.sketches.rails import rails
    from tuccl.sketches.size import aligned_chunks, for_size, prefer_links
    from tuccl.sketches.sketch import SKETCH_FORMAT, STAGES, LogicalLink, PrunedLink, Sketch
    from tuccl.sketches.symmetry import symmetries
    from tuccl.sketches.taccl import (
        TacclSketch,
        decode_taccl_sketch,
        read_taccl_profile,
        taccl_to_sketch,
    )
    from tuccl.sketches.taccl_profile import SHIPPED_UNITS, TacclProfile
    from tuccl.sketches.transformation import pinned_routes, transform

__all__ = [
    "SHIPPED_UNITS",
    "SKETCH_FORMAT",
    "STAGES",
    "Grouping",
    "LogicalLink",
    "PrunedLink",
    "Sketch",
    "TacclProfile",
    "TacclSketch",
    "aligned_chunks",
    "bind",
    "candidate_sketches",
    "checked",
    "closest_nics",
    "congestion_scores",
    "decode_sketch",
    "decode_taccl_sketch",
    "encode_sketch",
    "for_size",
    "full_mesh",
    "group",
    "load_sketch",
    "pinned_routes",
    "prefer_links",
    "prune_congested",
    "rails",
    "read_taccl_profile",
    "save_sketch",
    "save_sketches",
    "sketch_svg",
    "symmetries",
    "taccl_to_sketch",
    "transform",
    "with_congestion",
]

make_lazy(__name__)
