// Shortest paths from a set of vertices (Dijkstra 1959).
#pragma once
#include <limits>
#include <vector>

namespace tuccl::packing {

constexpr double kUnreachable = std::numeric_limits<double>::infinity();

/// An arc out of a vertex: where it leads, and its number among all arcs.
struct OutArc {
  int head = 0;
  int arc = 0;
};

using AdjacencyList = std::vector<std::vector<OutArc>>;

struct ShortestPaths {
  std::vector<double> distance;  ///< By vertex; kUnreachable where no path leads.
  std::vector<int> last_arc;     ///< By vertex; -1 at sources and where no path leads.
  std::vector<int> order;        ///< Vertices by distance.
};

/// Paths from the nearest of `sources`, by arcs of `lengths` of 0 or more. With a `target` of 0 or
/// more it stops there.
ShortestPaths shortest_paths(const AdjacencyList& graph, const std::vector<double>& lengths,
                             const std::vector<int>& sources, int target = -1);

}  // namespace tuccl::packing
