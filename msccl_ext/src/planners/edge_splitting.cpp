// ForestColl's switch node removal by edge splitting (Bang-Jensen, Frank and Jackson 1995): relays
// are removed one by one without lowering a flow that ranks need.
#include <algorithm>
#include <map>
#include <numeric>
#include <string>
#include <utility>

#include "planners/max_flow.h"
#include "tuccl/error.h"
#include "tuccl/packing.h"

namespace tuccl {
namespace packing {
namespace {

using Pair = std::pair<int, int>;

void check(int vertices, const std::vector<Arc>& arcs,
           const std::vector<std::int64_t>& chunks_per_root) {
  const int ranks = static_cast<int>(chunks_per_root.size());
  check_arcs(vertices, ranks, arcs);
  for (const std::int64_t chunks : chunks_per_root)
    if (chunks < 0 || chunks > kEndless / 2 / ranks)
      throw InputError(std::to_string(chunks) + " chunks of a root: expected 0 or more");
}

/// Splits the relays off a network, one after another.
class Splitter {
 public:
  Splitter(int vertices, const std::vector<Arc>& arcs,
           const std::vector<std::int64_t>& chunks_per_root)
      : vertices_(vertices), chunks_per_root_(chunks_per_root) {
    for (const Arc& arc : arcs)
      if (arc.tail != arc.head) capacity_[{arc.tail, arc.head}] += arc.capacity;
  }

  std::vector<Arc> run() {
    const int ranks = static_cast<int>(chunks_per_root_.size());
    for (int relay = ranks; relay < vertices_; ++relay) split(relay);
    std::vector<Arc> arcs;
    for (const auto& [ends, chunks] : capacity_)
      if (chunks > 0 && ends.first < ranks && ends.second < ranks)
        arcs.push_back({ends.first, ends.second, chunks});
    return arcs;
  }

 private:
  /// First an even share for every path through the relay, then the rest.
  void split(int relay) {
    std::vector<Pair> into, out;
    for (const auto& [ends, chunks] : capacity_) {
      if (chunks > 0 && ends.second == relay) into.push_back(ends);
      if (chunks > 0 && ends.first == relay) out.push_back(ends);
    }
    std::map<Pair, std::int64_t> share;
    std::int64_t total = 0;
    for (const Pair& to : out) total += capacity_[to];
    for (const Pair& from : into)
      for (const Pair& to : out)
        if (from.first != to.second)
          share[{from.first, to.second}] =
              capacity_[from] * capacity_[to] / std::max<std::int64_t>(1, total);
    for (const bool even : {true, false})
      // Neighbours far apart in number come first in turn, so that no rank is left for last.
      for (std::size_t shift = 0; shift < out.size(); ++shift)
        for (std::size_t i = 0; i < into.size(); ++i) {
          const Pair from = into[i], to = out[(i + shift) % out.size()];
          const std::int64_t most = std::min(capacity_[from], capacity_[to]);
          if (from.first != to.second)
            move(from, to, even ? std::min(most, share[{from.first, to.second}]) : most);
        }
    for (const Pair& from : into) capacity_.erase(from);
    for (const Pair& to : out) capacity_.erase(to);
  }

  /// Moves up to `chunks` of capacity past the relay: as many as leave every rank what it needs.
  void move(const Pair& from, const Pair& to, std::int64_t chunks) {
    if (chunks <= 0) return;
    shift(from, to, chunks);
    // A chunk lowers a cut by one or not at all, so the lack says how many were too many.
    const std::int64_t lack = shortfall_of().chunks;
    if (lack > 0) shift(from, to, -std::min(chunks, lack));
  }

  void shift(const Pair& from, const Pair& to, std::int64_t chunks) {
    capacity_[from] -= chunks;
    capacity_[to] -= chunks;
    capacity_[{from.first, to.second}] += chunks;
  }

  Shortfall shortfall_of() const {
    std::vector<Arc> arcs;
    for (const auto& [ends, chunks] : capacity_)
      if (chunks > 0) arcs.push_back({ends.first, ends.second, chunks});
    return shortfall(vertices_, arcs, chunks_per_root_);
  }

  int vertices_;
  std::vector<std::int64_t> chunks_per_root_;
  std::map<Pair, std::int64_t> capacity_;
};

}  // namespace
}  // namespace packing

Shortfall shortfall(int vertices, const std::vector<Arc>& arcs,
                    const std::vector<std::int64_t>& chunks_per_root, bool any,
                    std::vector<int> of) {
  packing::check(vertices, arcs, chunks_per_root);
  packing::FlowNetwork network(vertices + 1);
  for (const Arc& arc : arcs) network.add_arc(arc.tail, arc.head, arc.capacity);
  for (std::size_t rank = 0; rank < chunks_per_root.size(); ++rank)
    network.add_arc(vertices, static_cast<int>(rank), chunks_per_root[rank]);
  const std::int64_t total =
      std::accumulate(chunks_per_root.begin(), chunks_per_root.end(), std::int64_t{0});
  if (of.empty()) {
    of.resize(chunks_per_root.size());
    std::iota(of.begin(), of.end(), 0);
  }
  Shortfall worst;
  for (const int rank : of) {
    if (rank < 0 || rank >= vertices) throw InputError("expected vertices that take chunks");
    const std::int64_t lack = total - network.flow(vertices, rank, total);
    if (lack <= worst.chunks) continue;
    worst.chunks = lack;
    worst.side = network.source_side(vertices);
    worst.side.pop_back();  // the source itself has the largest number
    if (any) break;
  }
  return worst;
}

std::vector<Arc> split_relays(int vertices, const std::vector<Arc>& arcs,
                              const std::vector<std::int64_t>& chunks_per_root) {
  if (shortfall(vertices, arcs, chunks_per_root, true).chunks > 0)
    throw InputError("the capacities do not let every rank get all chunks");
  return packing::Splitter(vertices, arcs, chunks_per_root).run();
}

}  // namespace tuccl
