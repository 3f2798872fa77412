#include "planners/shortest_paths.h"

#include <functional>
#include <queue>
#include <utility>

namespace tuccl::packing {

ShortestPaths shortest_paths(const AdjacencyList& graph, const std::vector<double>& lengths,
                             const std::vector<int>& sources, int target) {
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
      const double length = distance + lengths[out.arc];
      if (!(length < paths.distance[out.head])) continue;
      paths.distance[out.head] = length;
      paths.last_arc[out.head] = out.arc;
      queue.emplace(length, out.head);
    }
  }
  return paths;
}

}  // namespace tuccl::packing
