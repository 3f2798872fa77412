"""Derive sketches: which links a synthesizer may use, and why others were pruned."""

from collections import Counter

import tuccl

cluster = tuccl.profile("ndv2", nodes=2)
sketches = tuccl.candidate_sketches(cluster, "allgather", "16M")
for sketch in sketches:
    stages = Counter(link.stage for link in sketch.pruned)
    pruned = ", ".join(f"{count} by {stage}" for stage, count in sorted(stages.items()))
    print(f"{sketch.name}: {len(sketch.links)} links; pruned: {pruned or 'none'}")

# The most promising sketch comes first, the full mesh last.
first = sketches[0]
for link in first.pruned[:3]:
    print(f"{first.name} has no link {link.src} -> {link.dst}: {link.reason}")
assert len(first.links) < len(sketches[-1].links)
