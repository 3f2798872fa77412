// Cuts and distances of large fabrics: many questions to one network.
#include <algorithm>
#include <limits>
#include <queue>
#include <string>
#include <utility>

#include "planners/max_flow.h"
#include "tuccl/error.h"
#include "tuccl/packing.h"

namespace tuccl {
namespace packing {
namespace {

void check(int vertices, int ranks, const std::vector<Arc>& arcs) {
  constexpr int kMostVertices = 65536;
  if (vertices < 1 || vertices > kMostVertices || ranks < 1 || ranks > vertices)
    throw InputError(std::to_string(ranks) + " ranks among " + std::to_string(vertices) +
                     " vertices: expected 1 to " + std::to_string(kMostVertices) +
                     " vertices, ranks first");
  std::int64_t total = 0;
  for (const Arc& arc : arcs) {
    if (std::min(arc.tail, arc.head) < 0 || std::max(arc.tail, arc.head) >= vertices ||
        arc.capacity < 0 || arc.capacity > kEndless - total)
      throw InputError("arc " + std::to_string(arc.tail) + " > " + std::to_string(arc.head) +
                       " of capacity " + std::to_string(arc.capacity) +
                       ": expected two vertices and 0 or more units");
    total += arc.capacity;
  }
}

/// The largest distance from `source` to a rank.
double eccentricity(const std::vector<std::vector<std::pair<int, double>>>& leaving, int ranks,
                    int source) {
  std::vector<double> least(leaving.size(), std::numeric_limits<double>::infinity());
  using Entry = std::pair<double, int>;
  std::priority_queue<Entry, std::vector<Entry>, std::greater<>> waiting;
  least[source] = 0;
  waiting.emplace(0.0, source);
  while (!waiting.empty()) {
    const auto [distance, vertex] = waiting.top();
    waiting.pop();
    if (distance > least[vertex]) continue;
    for (const auto& [head, length] : leaving[vertex])
      if (distance + length < least[head]) {
        least[head] = distance + length;
        waiting.emplace(least[head], head);
      }
  }
  return *std::max_element(least.begin(), least.begin() + ranks);
}

}  // namespace
}  // namespace packing

std::vector<std::int64_t> isolation(int vertices, const std::vector<Arc>& arcs, int ranks,
                                    const std::vector<std::vector<int>>& groups) {
  packing::check(vertices, ranks, arcs);
  packing::FlowNetwork network(vertices + 2);
  const int source = vertices, sink = vertices + 1;
  for (const Arc& arc : arcs) network.add_arc(arc.tail, arc.head, arc.capacity);
  const int feeds = static_cast<int>(arcs.size()), drains = feeds + ranks;
  for (int rank = 0; rank < ranks; ++rank) network.add_arc(source, rank);
  for (int rank = 0; rank < ranks; ++rank) network.add_arc(rank, sink, packing::kEndless);
  std::vector<std::int64_t> rates;
  for (const std::vector<int>& group : groups) {
    for (const int rank : group) {
      if (rank < 0 || rank >= ranks)
        throw InputError("rank " + std::to_string(rank) + " in a group: expected 0 to " +
                         std::to_string(ranks - 1));
      network.set(feeds + rank, packing::kEndless);
      network.set(drains + rank, 0);
    }
    rates.push_back(network.flow(source, sink));
    for (const int rank : group) {
      network.set(feeds + rank, 0);
      network.set(drains + rank, packing::kEndless);
    }
  }
  return rates;
}

double diameter(int vertices, const std::vector<std::pair<int, int>>& arcs,
                const std::vector<double>& lengths, int ranks) {
  if (arcs.size() != lengths.size()) throw InputError("expected a length for each arc");
  std::vector<Arc> bare;
  for (const auto& [tail, head] : arcs) bare.push_back({tail, head, 0});
  packing::check(vertices, ranks, bare);
  std::vector<std::vector<std::pair<int, double>>> leaving(vertices);
  for (std::size_t a = 0; a < arcs.size(); ++a) {
    if (!(lengths[a] >= 0)) throw InputError("expected lengths of 0 or more");
    leaving[arcs[a].first].emplace_back(arcs[a].second, lengths[a]);
  }
  double most = 0;
  for (int rank = 0; rank < ranks; ++rank)
    most = std::max(most, packing::eccentricity(leaving, ranks, rank));
  return most;
}

}  // namespace tuccl
