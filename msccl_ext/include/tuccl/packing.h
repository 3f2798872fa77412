// Packing of weighted trees: which capacities suffice, relays split off, trees found.
#pragma once
#include <cstdint>
#include <vector>

namespace tuccl {

/// A directed arc of whole capacity.
struct Arc {
  int tail = 0;
  int head = 0;
  std::int64_t capacity = 0;
};

/// What a network lacks: units that some rank cannot get, and the side of the cut that stops them.
struct Shortfall {
  std::int64_t units = 0;
  std::vector<int> side;
};

/// `weight` equal trees that span all ranks from `root`.
struct Tree {
  int root = 0;
  std::int64_t weight = 0;
  std::vector<int> parent;  ///< By rank; -1 at the root.
  std::vector<int> order;   ///< Ranks, each after its parent.
};

/// How many of the units that `feeds` gives the ranks (the first vertices) some rank cannot get.
/// Throws InputError where arguments do not fit together.
Shortfall shortfall(int vertices, const std::vector<Arc>& arcs,
                    const std::vector<std::int64_t>& feeds);

/// The arcs between ranks that stand for the ways through relays (vertices from `feeds.size()` on),
/// such that every rank still gets all units. Capacity that no rank needs may be lost.
std::vector<Arc> split_relays(int vertices, const std::vector<Arc>& arcs,
                              const std::vector<std::int64_t>& feeds);

/// Trees that need no more than the arcs have: `feeds[r]` in all from each rank r. Throws
/// InputError where some rank cannot get all units.
std::vector<Tree> pack_trees(const std::vector<Arc>& arcs, const std::vector<std::int64_t>& feeds);

}  // namespace tuccl
