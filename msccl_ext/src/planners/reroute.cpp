// Trees over fixed routes by rerouting: each chunk in turn takes the trees that load the network
// least, at prices that rise with a resource's load.
#include <algorithm>
#include <array>
#include <cmath>
#include <string>

#include "planners/shortest_paths.h"
#include "tuccl/error.h"
#include "tuccl/packing.h"

namespace tuccl {
namespace packing {
namespace {

/// The power that a resource's share of the fullest one's load is raised to: low at first, so that
/// all resources count; high at last, where the fullest decides.
constexpr double kFirstPower = 3.0, kLastPower = 48.0;
/// What a rank one further from the root costs, as a part of the cheapest arc.
constexpr double kDepthCost = 0.02;

struct PricedTree {
  std::vector<int> parent;
  double cost = kUnreachable;
};

class Router {
 public:
  Router(const Network& network, const std::vector<ChunkDemand>& demands)
      : network_(network),
        demands_(demands),
        cost_(static_cast<std::size_t>(network.ranks()) * network.ranks(), kUnreachable),
        loads_(network.resources().size(), 0.0),
        trees_(demands.size()) {}

  std::vector<ChunkTrees> run(const RerouteOptions& options) {
    max_depth_ = {options.broadcast_depth, options.reduce_depth};
    for (std::size_t d = 0; d < demands_.size(); ++d) choose(d, kFirstPower);
    std::vector<ChunkTrees> best = trees_;
    double least = busiest_s();
    const int rounds = options.rounds;
    for (int round = 0; round < rounds && least > options.target * (1 + 1e-9); ++round) {
      const double part = rounds > 1 ? static_cast<double>(round) / (rounds - 1) : 1.0;
      const double power = kFirstPower * std::pow(kLastPower / kFirstPower, part);
      for (std::size_t d = 0; d < demands_.size(); ++d) {
        load(trees_[d], -1);
        choose(d, power);
      }
      if (busiest_s() < least * (1 - 1e-12)) {
        least = busiest_s();
        best = trees_;
      }
    }
    return best;
  }

 private:
  std::size_t at(int tail, int head) const {
    return static_cast<std::size_t>(tail) * network_.ranks() + head;
  }

  double rate(std::size_t resource) const { return network_.resources()[resource].bandwidth_gbs; }

  /// The time of the busiest resource.
  double busiest_s() const {
    double most = 0;
    for (std::size_t r = 0; r < loads_.size(); ++r) most = std::max(most, loads_[r] / rate(r));
    return most;
  }

  /// Gives a demand the cheapest trees at the present loads, and adds its own.
  void choose(std::size_t number, double power) {
    price(power);
    const ChunkDemand& demand = demands_[number];
    ChunkTrees best;
    double least = kUnreachable;
    for (int root = 0; root < network_.ranks(); ++root) {
      if (demand.root >= 0 && root != demand.root) continue;
      PricedTree broadcast, reduce;
      if (demand.broadcast) broadcast = tree(root, false);
      if (demand.reduce) reduce = tree(root, true);
      const double cost =
          (demand.broadcast ? broadcast.cost : 0.0) + (demand.reduce ? reduce.cost : 0.0);
      if (!(cost < least * (1 - 1e-12))) continue;
      least = cost;
      best = {root, std::move(reduce.parent), std::move(broadcast.parent)};
    }
    if (least == kUnreachable) throw InputError("the routes do not join all ranks");
    load(best, 1);
    trees_[number] = std::move(best);
  }

  /// Prices one more chunk on each route.
  void price(double power) {
    double fullest = 0;
    for (std::size_t r = 0; r < loads_.size(); ++r)
      fullest = std::max(fullest, (loads_[r] + 1) / rate(r));
    std::vector<double> price(loads_.size());
    for (std::size_t r = 0; r < loads_.size(); ++r)
      price[r] = std::pow((loads_[r] + 1) / rate(r) / fullest, power) / rate(r) + 1e-9;
    cheapest_ = kUnreachable;
    for (const Route& route : network_.routes()) {
      double sum = 0;
      for (const int resource : route.resources) sum += price[resource];
      cost_[at(route.src, route.dst)] = sum;
      cheapest_ = std::min(cheapest_, sum);
    }
  }

  double arc(int parent, int child, bool reduce) const {
    return reduce ? cost_[at(child, parent)] : cost_[at(parent, child)];
  }

  /// A cheap tree: Prim's by the cheapest arc, then each rank moved to a cheaper parent.
  PricedTree tree(int root, bool reduce) const {
    const int n = network_.ranks();
    PricedTree tree{std::vector<int>(n, -1), 0.0};
    std::vector<int> level(n, -1), nearest(n, root);
    std::vector<double> price(n, kUnreachable);
    level[root] = 0;
    for (int child = 0; child < n; ++child)
      if (child != root) price[child] = arc(root, child, reduce);
    for (int reached = 1; reached < n; ++reached) {
      int next = -1;
      for (int child = 0; child < n; ++child)
        if (level[child] < 0 && (next < 0 || price[child] < price[next])) next = child;
      if (price[next] == kUnreachable) return {{}, kUnreachable};
      tree.parent[next] = nearest[next];
      level[next] = level[nearest[next]] + 1;
      for (int child = 0; child < n; ++child) {
        if (level[child] >= 0 || level[next] == max_depth_[reduce]) continue;
        const double cost = arc(next, child, reduce) + level[next] * kDepthCost * cheapest_;
        if (!(cost < price[child])) continue;
        price[child] = cost;
        nearest[child] = next;
      }
    }
    improve(tree, root, reduce);
    for (int child = 0; child < n; ++child)
      if (child != root) tree.cost += arc(tree.parent[child], child, reduce);
    tree.cost += height(tree, root) * kDepthCost * cheapest_;
    return tree;
  }

  /// Moves ranks, with what hangs below them, to cheaper parents while there are any.
  void improve(PricedTree& tree, int root, bool reduce) const {
    const int n = network_.ranks();
    for (bool moved = true; moved;) {
      moved = false;
      for (int child = 0; child < n; ++child) {
        if (child == root) continue;
        for (int parent = 0; parent < n; ++parent) {
          const double present = arc(tree.parent[child], child, reduce);
          if (parent == child || !(arc(parent, child, reduce) < present * (1 - 1e-9))) continue;
          if (steps_up(tree, parent, child) >= 0) continue;
          if (steps_up(tree, parent, root) + 1 + height(tree, child) > max_depth_[reduce]) continue;
          tree.parent[child] = parent;
          moved = true;
        }
      }
    }
  }

  /// The arcs from `rank` up to `top`; -1 where `top` is not above it.
  static int steps_up(const PricedTree& tree, int rank, int top) {
    int arcs = 0;
    for (; rank >= 0 && rank != top; rank = tree.parent[rank]) ++arcs;
    return rank == top ? arcs : -1;
  }

  /// The most arcs from `top` down to a rank below it.
  static int height(const PricedTree& tree, int top) {
    int most = 0;
    for (int rank = 0; rank < static_cast<int>(tree.parent.size()); ++rank)
      most = std::max(most, steps_up(tree, rank, top));
    return most;
  }

  void load(const ChunkTrees& trees, int chunks) {
    for (int child = 0; child < network_.ranks(); ++child) {
      if (child == trees.root) continue;
      if (!trees.broadcast.empty()) load(trees.broadcast[child], child, chunks);
      if (!trees.reduce.empty()) load(child, trees.reduce[child], chunks);
    }
  }

  void load(int src, int dst, int chunks) {
    for (const int resource : network_.routes()[network_.find(src, dst)].resources)
      loads_[resource] += chunks;
  }

  const Network& network_;
  const std::vector<ChunkDemand>& demands_;
  std::vector<double> cost_;        ///< By source and destination.
  double cheapest_ = 0;             ///< The least of `cost_`.
  std::array<int, 2> max_depth_{};  ///< Most arcs from a root, by whether chunks are reduced.
  std::vector<double> loads_;       ///< By resource.
  std::vector<ChunkTrees> trees_;
};

void check_demands(const Network& network, const std::vector<ChunkDemand>& demands) {
  if (network.ranks() < 2 || network.resources().empty())
    throw InputError("a network of " + std::to_string(network.ranks()) + " ranks and " +
                     std::to_string(network.resources().size()) +
                     " resources: expected 2 or more ranks, joined by some");
  for (const ChunkDemand& demand : demands)
    if (demand.root < -1 || demand.root >= network.ranks())
      throw InputError("root " + std::to_string(demand.root) + ": expected a rank or -1");
}

}  // namespace
}  // namespace packing

std::vector<ChunkTrees> reroute(const Network& network, const std::vector<ChunkDemand>& demands,
                                const RerouteOptions& options) {
  packing::check_demands(network, demands);
  return packing::Router(network, demands).run(options);
}

}  // namespace tuccl
