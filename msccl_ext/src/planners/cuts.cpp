// Minimum cuts between groups of ranks, and distances.
#include <algorithm>
#include <string>
#include <utility>

#include "planners/max_flow.h"
#include "planners/shortest_paths.h"
#include "tuccl/error.h"
#include "tuccl/packing.h"

namespace tuccl {
namespace packing {
namespace {

AdjacencyList adjacency(int vertices, const std::vector<std::pair<int, int>>& arcs,
                        const std::vector<double>& lengths) {
  if (arcs.size() != lengths.size()) throw InputError("expected a length for each arc");
  AdjacencyList graph(vertices);
  for (std::size_t a = 0; a < arcs.size(); ++a) {
    const auto [tail, head] = arcs[a];
    if (std::min(tail, head) < 0 || std::max(tail, head) >= vertices || !(lengths[a] >= 0))
      throw InputError("arc " + std::to_string(tail) + " > " + std::to_string(head) +
                       ": expected two vertices and a length of 0 or more");
    graph[tail].push_back({head, static_cast<int>(a)});
  }
  return graph;
}

}  // namespace
}  // namespace packing

std::vector<std::int64_t> group_cuts(int vertices, const std::vector<Arc>& arcs, int ranks,
                                     const std::vector<std::vector<int>>& groups) {
  packing::check_arcs(vertices, ranks, arcs);
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

MinCut min_cut(int vertices, const std::vector<Arc>& arcs, int source, int sink) {
  packing::check_arcs(vertices, vertices, arcs);
  if (std::min(source, sink) < 0 || std::max(source, sink) >= vertices || source == sink)
    throw InputError("expected two vertices to cut apart");
  packing::FlowNetwork network(vertices);
  for (const Arc& arc : arcs) network.add_arc(arc.tail, arc.head, arc.capacity);
  const std::int64_t capacity = network.flow(source, sink);
  return {capacity, network.source_side(source)};
}

std::vector<double> distances(int vertices, const std::vector<std::pair<int, int>>& arcs,
                              const std::vector<double>& lengths, const std::vector<int>& sources) {
  const packing::AdjacencyList graph = packing::adjacency(vertices, arcs, lengths);
  for (const int source : sources)
    if (source < 0 || source >= vertices) throw InputError("expected vertices as sources");
  return packing::shortest_paths(graph, lengths, sources).distance;
}

double diameter(int vertices, const std::vector<std::pair<int, int>>& arcs,
                const std::vector<double>& lengths, int ranks, const std::vector<int>& sources) {
  const packing::AdjacencyList graph = packing::adjacency(vertices, arcs, lengths);
  if (ranks < 1 || ranks > vertices) throw InputError("expected ranks among the vertices");
  double longest = 0;
  for (const int source : sources) {
    if (source < 0 || source >= vertices) throw InputError("expected vertices as sources");
    const auto distance = packing::shortest_paths(graph, lengths, {source}).distance;
    longest = std::max(longest, *std::max_element(distance.begin(), distance.begin() + ranks));
  }
  return longest;
}

}  // namespace tuccl
