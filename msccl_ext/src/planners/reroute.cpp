// Trees over fixed ways by rerouting: every chunk in turn takes the trees that crowd wires least.
#include <algorithm>
#include <array>
#include <cmath>
#include <limits>
#include <string>

#include "tuccl/error.h"
#include "tuccl/packing.h"

namespace tuccl {
namespace packing {
namespace {

constexpr double kNoWay = std::numeric_limits<double>::infinity();
/// The more a wire's share of the fullest wire's load is raised to, the less but it counts. Low at
/// first, so that the first choices look at all wires; high at last, where the fullest decides.
constexpr double kFirstPower = 3.0, kLastPower = 48.0;
/// What a rank one further from the root costs, as a part of the cheapest arc.
constexpr double kDepthCost = 0.02;

struct Found {
  std::vector<int> parent;
  double cost = kNoWay;
};

class Router {
 public:
  Router(const Ways& ways, const std::vector<Errand>& errands)
      : ways_(ways),
        errands_(errands),
        pair_of_(static_cast<std::size_t>(ways.ranks) * ways.ranks, -1),
        cost_(pair_of_.size(), kNoWay),
        loads_(ways.rates.size(), 0.0),
        journeys_(errands.size()) {
    for (std::size_t p = 0; p < ways.tails.size(); ++p)
      pair_of_[at(ways.tails[p], ways.heads[p])] = static_cast<int>(p);
  }

  std::vector<Journey> run(const Effort& effort) {
    deepest_ = {effort.deepest_down, effort.deepest_up};
    for (std::size_t e = 0; e < errands_.size(); ++e) choose(e, kFirstPower);
    std::vector<Journey> best = journeys_;
    double least = span();
    const int rounds = effort.rounds;
    for (int round = 0; round < rounds && least > effort.target * (1 + 1e-9); ++round) {
      const double part = rounds > 1 ? static_cast<double>(round) / (rounds - 1) : 1.0;
      const double power = kFirstPower * std::pow(kLastPower / kFirstPower, part);
      for (std::size_t e = 0; e < errands_.size(); ++e) {
        load(journeys_[e], -1);
        choose(e, power);
      }
      if (span() < least * (1 - 1e-12)) {
        least = span();
        best = journeys_;
      }
    }
    return best;
  }

 private:
  std::size_t at(int tail, int head) const {
    return static_cast<std::size_t>(tail) * ways_.ranks + head;
  }

  double span() const {
    double most = 0;
    for (std::size_t w = 0; w < loads_.size(); ++w)
      most = std::max(most, loads_[w] / ways_.rates[w]);
    return most;
  }

  /// Gives an errand the cheapest trees as the wires now are, and loads them.
  void choose(std::size_t errand, double power) {
    price(power);
    const Errand& asked = errands_[errand];
    Journey best;
    double least = kNoWay;
    for (int root = 0; root < ways_.ranks; ++root) {
      if (asked.root >= 0 && root != asked.root) continue;
      Found down, up;
      if (asked.down) down = tree(root, false);
      if (asked.up) up = tree(root, true);
      const double cost = (asked.down ? down.cost : 0.0) + (asked.up ? up.cost : 0.0);
      if (!(cost < least * (1 - 1e-12))) continue;
      least = cost;
      best = {root, std::move(up.parent), std::move(down.parent)};
    }
    if (least == kNoWay) throw InputError("the pairs do not join all ranks");
    load(best, 1);
    journeys_[errand] = std::move(best);
  }

  /// The price of one more chunk on each pair.
  void price(double power) {
    double fullest = 0;
    for (std::size_t w = 0; w < loads_.size(); ++w)
      fullest = std::max(fullest, (loads_[w] + 1) / ways_.rates[w]);
    std::vector<double> wire(loads_.size());
    for (std::size_t w = 0; w < loads_.size(); ++w)
      wire[w] = std::pow((loads_[w] + 1) / ways_.rates[w] / fullest, power) / ways_.rates[w] + 1e-9;
    cheapest_ = kNoWay;
    for (std::size_t p = 0; p < ways_.tails.size(); ++p) {
      double sum = 0;
      for (const int w : ways_.wires[p]) sum += wire[w];
      cost_[at(ways_.tails[p], ways_.heads[p])] = sum;
      cheapest_ = std::min(cheapest_, sum);
    }
  }

  double arc(int parent, int child, bool up) const {
    return up ? cost_[at(child, parent)] : cost_[at(parent, child)];
  }

  /// A cheap tree: grown by the cheapest arc, then each rank moved to a cheaper parent.
  Found tree(int root, bool up) const {
    const int n = ways_.ranks;
    Found found{std::vector<int>(n, -1), 0.0};
    std::vector<int> depth(n, -1), nearest(n, root);
    std::vector<double> price(n, kNoWay);
    depth[root] = 0;
    for (int child = 0; child < n; ++child)
      if (child != root) price[child] = arc(root, child, up);
    for (int grown = 1; grown < n; ++grown) {
      int next = -1;
      for (int child = 0; child < n; ++child)
        if (depth[child] < 0 && (next < 0 || price[child] < price[next])) next = child;
      if (price[next] == kNoWay) return {{}, kNoWay};
      found.parent[next] = nearest[next];
      depth[next] = depth[nearest[next]] + 1;
      for (int child = 0; child < n; ++child) {
        if (depth[child] >= 0 || depth[next] == deepest_[up]) continue;
        const double cost = arc(next, child, up) + depth[next] * kDepthCost * cheapest_;
        if (!(cost < price[child])) continue;
        price[child] = cost;
        nearest[child] = next;
      }
    }
    rehang(found, root, up);
    for (int child = 0; child < n; ++child)
      if (child != root) found.cost += arc(found.parent[child], child, up);
    found.cost += height(found, root) * kDepthCost * cheapest_;
    return found;
  }

  void rehang(Found& found, int root, bool up) const {
    const int n = ways_.ranks;
    for (bool moved = true; moved;) {
      moved = false;
      for (int child = 0; child < n; ++child) {
        if (child == root) continue;
        for (int parent = 0; parent < n; ++parent) {
          const double now = arc(found.parent[child], child, up);
          if (parent == child || !(arc(parent, child, up) < now * (1 - 1e-9))) continue;
          if (below(found, parent, child)) continue;
          if (depth(found, parent) + 1 + height(found, child) > deepest_[up]) continue;
          found.parent[child] = parent;
          moved = true;
        }
      }
    }
  }

  static int depth(const Found& found, int rank) {
    int arcs = 0;
    while ((rank = found.parent[rank]) >= 0) ++arcs;
    return arcs;
  }

  /// The most arcs from `top` down to a rank under it.
  static int height(const Found& found, int top) {
    int most = 0;
    for (int rank = 0; rank < static_cast<int>(found.parent.size()); ++rank) {
      int arcs = 0, at = rank;
      for (; at >= 0 && at != top; at = found.parent[at]) ++arcs;
      if (at == top) most = std::max(most, arcs);
    }
    return most;
  }

  /// Whether `rank` is in the part of the tree under `top`.
  static bool below(const Found& found, int rank, int top) {
    while (rank >= 0 && rank != top) rank = found.parent[rank];
    return rank == top;
  }

  void load(const Journey& journey, int chunks) {
    for (int child = 0; child < ways_.ranks; ++child) {
      if (child == journey.root) continue;
      if (!journey.down.empty()) load(pair_of_[at(journey.down[child], child)], chunks);
      if (!journey.up.empty()) load(pair_of_[at(child, journey.up[child])], chunks);
    }
  }

  void load(int pair, int chunks) {
    for (const int wire : ways_.wires[pair]) loads_[wire] += chunks;
  }

  const Ways& ways_;
  const std::vector<Errand>& errands_;
  std::vector<int> pair_of_;      ///< By tail and head; -1 where they are no pair.
  std::vector<double> cost_;      ///< By tail and head.
  double cheapest_ = 0;           ///< The least of `cost_`.
  std::array<int, 2> deepest_{};  ///< Most arcs from a root, by whether trees lead up.
  std::vector<double> loads_;
  std::vector<Journey> journeys_;
};

}  // namespace
}  // namespace packing

void check_ways(const Ways& ways, const std::vector<Errand>& errands) {
  constexpr int kMostRanks = 1024;
  if (ways.ranks < 2 || ways.ranks > kMostRanks || ways.wires.size() != ways.tails.size())
    throw InputError(std::to_string(ways.ranks) + " ranks: expected 2 to " +
                     std::to_string(kMostRanks) + " and the wires of each pair");
  for (const double rate : ways.rates)
    if (!(rate > 0) || !std::isfinite(rate)) throw InputError("expected positive rates of wires");
  for (std::size_t p = 0; p < ways.tails.size(); ++p) {
    const bool ranked = std::min(ways.tails[p], ways.heads[p]) >= 0 &&
                        std::max(ways.tails[p], ways.heads[p]) < ways.ranks;
    for (const int wire : ways.wires[p])
      if (wire < 0 || wire >= static_cast<int>(ways.rates.size()))
        throw InputError("no wire " + std::to_string(wire) + ": expected the number of a rate");
    if (!ranked) throw InputError("pair " + std::to_string(p) + ": expected two ranks");
  }
  for (const Errand& errand : errands)
    if (errand.root < -1 || errand.root >= ways.ranks)
      throw InputError("root " + std::to_string(errand.root) + ": expected a rank or -1");
}

std::vector<Journey> reroute(const Ways& ways, const std::vector<Errand>& errands,
                             const Effort& effort) {
  check_ways(ways, errands);
  return packing::Router(ways, errands).run(effort);
}

}  // namespace tuccl
