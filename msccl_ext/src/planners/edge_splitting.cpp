// Edge splitting: relays are taken out one by one without lowering a flow that ranks need.
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

void check(int vertices, const std::vector<Arc>& arcs, const std::vector<std::int64_t>& feeds) {
  constexpr int kMostVertices = 65536;
  if (vertices < 1 || vertices > kMostVertices || feeds.empty() ||
      static_cast<int>(feeds.size()) > vertices)
    throw InputError(std::to_string(feeds.size()) + " ranks among " + std::to_string(vertices) +
                     " vertices: expected 1 to " + std::to_string(kMostVertices) +
                     " vertices, ranks first");
  for (const Arc& arc : arcs)
    if (arc.tail < 0 || arc.head < 0 || arc.tail >= vertices || arc.head >= vertices ||
        arc.capacity < 0 || arc.capacity > kEndless)
      throw InputError("arc " + std::to_string(arc.tail) + " > " + std::to_string(arc.head) +
                       " of capacity " + std::to_string(arc.capacity) +
                       ": expected two vertices and 0 or more units");
  const std::int64_t most = kEndless / 2 / static_cast<std::int64_t>(feeds.size());
  for (const std::int64_t units : feeds)
    if (units < 0 || units > most)
      throw InputError("feed of " + std::to_string(units) + " units: expected 0 to " +
                       std::to_string(most));
}

/// Splits the relays off a network, one after another.
class Splitter {
 public:
  Splitter(int vertices, const std::vector<Arc>& arcs, const std::vector<std::int64_t>& feeds)
      : vertices_(vertices), feeds_(feeds) {
    for (const Arc& arc : arcs)
      if (arc.tail != arc.head) capacity_[{arc.tail, arc.head}] += arc.capacity;
  }

  std::vector<Arc> run() {
    const int ranks = static_cast<int>(feeds_.size());
    for (int relay = ranks; relay < vertices_; ++relay) split(relay);
    std::vector<Arc> arcs;
    for (const auto& [ends, units] : capacity_)
      if (units > 0 && ends.first < ranks && ends.second < ranks)
        arcs.push_back({ends.first, ends.second, units});
    return arcs;
  }

 private:
  /// First an even share for every way through the relay, then whatever is left.
  void split(int relay) {
    std::vector<Pair> into, out;
    for (const auto& [ends, units] : capacity_) {
      if (units > 0 && ends.second == relay) into.push_back(ends);
      if (units > 0 && ends.first == relay) out.push_back(ends);
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

  /// Leads up to `units` past the relay, as many as leave every rank what it needs.
  void move(const Pair& from, const Pair& to, std::int64_t units) {
    if (units <= 0) return;
    shift(from, to, units);
    // A unit lowers a cut by one or not at all, so the lack says how many were too many.
    const std::int64_t lack = shortfall_of().units;
    if (lack > 0) shift(from, to, -std::min(units, lack));
  }

  void shift(const Pair& from, const Pair& to, std::int64_t units) {
    capacity_[from] -= units;
    capacity_[to] -= units;
    capacity_[{from.first, to.second}] += units;
  }

  Shortfall shortfall_of() const {
    std::vector<Arc> arcs;
    for (const auto& [ends, units] : capacity_)
      if (units > 0) arcs.push_back({ends.first, ends.second, units});
    return shortfall(vertices_, arcs, feeds_);
  }

  int vertices_;
  std::vector<std::int64_t> feeds_;
  std::map<Pair, std::int64_t> capacity_;
};

}  // namespace
}  // namespace packing

namespace packing {
namespace {

/// The worst rank's shortfall, or the first one's.
Shortfall lacking(int vertices, const std::vector<Arc>& arcs,
                  const std::vector<std::int64_t>& feeds, bool first) {
  check(vertices, arcs, feeds);
  FlowNetwork network(vertices + 1);
  for (const Arc& arc : arcs) network.add_arc(arc.tail, arc.head, arc.capacity);
  for (std::size_t rank = 0; rank < feeds.size(); ++rank)
    network.add_arc(vertices, static_cast<int>(rank), feeds[rank]);
  const std::int64_t total = std::accumulate(feeds.begin(), feeds.end(), std::int64_t{0});
  Shortfall worst;
  for (std::size_t rank = 0; rank < feeds.size(); ++rank) {
    const std::int64_t lack = total - network.flow(vertices, static_cast<int>(rank), total);
    if (lack <= worst.units) continue;
    worst.units = lack;
    worst.side = network.source_side(vertices);
    worst.side.pop_back();  // the source itself has the largest number
    if (first) break;
  }
  return worst;
}

}  // namespace
}  // namespace packing

Shortfall shortfall(int vertices, const std::vector<Arc>& arcs,
                    const std::vector<std::int64_t>& feeds) {
  return packing::lacking(vertices, arcs, feeds, false);
}

bool suffices(int vertices, const std::vector<Arc>& arcs, const std::vector<std::int64_t>& feeds) {
  return packing::lacking(vertices, arcs, feeds, true).units == 0;
}

std::vector<Arc> split_relays(int vertices, const std::vector<Arc>& arcs,
                              const std::vector<std::int64_t>& feeds) {
  packing::check(vertices, arcs, feeds);
  if (!suffices(vertices, arcs, feeds))
    throw InputError("the capacities do not let every rank get all units");
  return packing::Splitter(vertices, arcs, feeds).run();
}

}  // namespace tuccl
