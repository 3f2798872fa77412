// Shortest paths from a set of vertices (Dijkstra 1959).
#pragma once
#include <functional>
#include <limits>
#include <queue>
#include <utility>
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

/// Paths from the nearest of `sources`, by arcs whose `length(arc)` is 0 or more. With a `target`
/// of 0 or more it stops there.
template <class Extend>
ShortestPaths shortest_paths_by(const AdjacencyList& graph, const Extend& extend,
                                const std::vector<int>& sources, int target = -1) {
  ShortestPaths paths{
      std::vector<double>(graph.size(), kUnreachable), std::vector<int>(graph.size(), -1), {}};
  using Entry = std::pair<double, int>;
  std::priority_queue<Entry, std::vector<Entry>, std::greater<>> queue;
  for (const int source : sources) {
    paths.distance[source] = 0;
    queue.emplace(0.0, source);
  }
  while (!queue.empty()) {
    const auto [distance, vertex] = queue.top();
    queue.pop();
    if (distance > paths.distance[vertex]) continue;
    paths.order.push_back(vertex);
    if (vertex == target) break;
    for (const OutArc& out : graph[vertex]) {
      const double total = extend(distance, out.arc);
      if (!(total < paths.distance[out.head])) continue;
      paths.distance[out.head] = total;
      paths.last_arc[out.head] = out.arc;
      queue.emplace(total, out.head);
    }
  }
  return paths;
}

/// The same by `lengths` of the arcs.
inline ShortestPaths shortest_paths(const AdjacencyList& graph, const std::vector<double>& lengths,
                                    const std::vector<int>& sources, int target = -1) {
  return shortest_paths_by(
      graph, [&](double distance, int arc) { return distance + lengths[arc]; }, sources, target);
}

}  // namespace tuccl::packing
