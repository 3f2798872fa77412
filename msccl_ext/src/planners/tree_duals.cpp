// Duals of fractional tree packing: prices of resources at which the cheapest trees cost much.
#include <algorithm>
#include <cmath>
#include <string>
#include <utility>

#include "planners/demands.h"
#include "tuccl/error.h"
#include "tuccl/packing.h"

namespace tuccl {
namespace packing {
namespace {

/// Prices are whole, so that sums are exact.
constexpr std::int64_t kHighestPrice = 1 << 24;
/// By what part the price of the resource that trees load most rises, in the first and the last
/// round.
constexpr double kFirstRise = 1.5, kLastRise = 0.0005;

struct PricedArc {
  int tail = 0, head = 0;
  std::int64_t price = 0;
};

/// By vertex, the number of the cheapest arc into it; -1 where none leads.
std::vector<int> cheapest_into(int vertices, const std::vector<PricedArc>& arcs) {
  std::vector<int> into(vertices, -1);
  for (int n = 0; n < static_cast<int>(arcs.size()); ++n) {
    int& best = into[arcs[n].head];
    if (arcs[n].tail != arcs[n].head && (best < 0 || arcs[n].price < arcs[best].price)) best = n;
  }
  return into;
}

/// The arcs of the cheapest tree from `root` to all of `vertices`, by number; empty where there is
/// none. Cycles of cheapest arcs are contracted, and opened where the tree enters them.
/// (Chu and Liu 1965, Edmonds 1967.)
std::vector<int> cheapest_tree(int vertices, int root, const std::vector<PricedArc>& arcs) {
  std::vector<int> into = cheapest_into(vertices, arcs);
  std::vector<int> component(vertices, -1), seen(vertices, -1);
  std::vector<bool> on_cycle(vertices, false);
  int count = 0;
  for (int start = 0; start < vertices; ++start) {
    if (start != root && into[start] < 0) return {};
    int at = start;
    for (; at != root && seen[at] < 0; at = arcs[into[at]].tail) seen[at] = start;
    if (at == root || seen[at] != start || component[at] >= 0) continue;
    for (; component[at] < 0; at = arcs[into[at]].tail) {
      component[at] = count;
      on_cycle[at] = true;
    }
    ++count;
  }
  if (count == 0) {
    into.erase(into.begin() + root);
    return into;
  }
  for (int& number : component)
    if (number < 0) number = count++;
  std::vector<PricedArc> contracted;
  std::vector<int> original;
  for (int n = 0; n < static_cast<int>(arcs.size()); ++n) {
    const auto& [tail, head, price] = arcs[n];
    if (head == root || component[tail] == component[head]) continue;
    const std::int64_t saved = on_cycle[head] ? arcs[into[head]].price : 0;
    contracted.push_back({component[tail], component[head], price - saved});
    original.push_back(n);
  }
  const std::vector<int> outer = cheapest_tree(count, component[root], contracted);
  if (outer.empty() && count > 1) return {};
  std::vector<int> tree;
  for (const int arc : outer) {
    tree.push_back(original[arc]);
    on_cycle[arcs[original[arc]].head] = false;
  }
  for (int vertex = 0; vertex < vertices; ++vertex)
    if (on_cycle[vertex]) tree.push_back(into[vertex]);
  return tree;
}

/// Numbers of routes, each as often as a message takes it, and what they cost.
struct CostedTree {
  std::vector<int> routes;
  std::int64_t cost = 0;
};

/// Prices by multiplicative weights: what the cheapest trees load most becomes dearer.
class PriceSearch {
 public:
  PriceSearch(const Network& network, const std::vector<ChunkDemand>& demands)
      : network_(network), demands_(demands) {
    for (std::size_t r = 0; r < network.resources().size(); ++r) price_.push_back(1 / rate(r));
    for (const Route& route : network.routes()) {
      down_.push_back({route.src, route.dst, 0});
      up_.push_back({route.dst, route.src, 0});
    }
  }

  TreeDuals run(int rounds) {
    TreeDuals best;
    double most = -1;
    for (int round = 0; round < rounds; ++round) {
      const double part = rounds > 1 ? static_cast<double>(round) / (rounds - 1) : 0.0;
      const std::vector<std::int64_t> prices = rounded();
      std::vector<double> load(price_.size(), 0.0);
      std::int64_t cost = 0;
      for (const ChunkDemand& demand : demands_) {
        const CostedTree tree = cheapest(demand);
        cost += tree.cost;
        for (const int route : tree.routes)
          for (const int resource : network_.routes()[route].resources)
            load[resource] += 1 / rate(resource);
      }
      double paid = 0;
      for (std::size_t r = 0; r < prices.size(); ++r)
        paid += static_cast<double>(prices[r]) * rate(r);
      if (const double bound = static_cast<double>(cost) / paid; bound > most) {
        most = bound;
        best = {prices, cost};
      }
      raise(load, kFirstRise * std::pow(kLastRise / kFirstRise, part));
    }
    return best;
  }

 private:
  double rate(std::size_t resource) const { return network_.resources()[resource].bandwidth_gbs; }

  /// Whole prices in proportion to `price_`, and the prices of the routes.
  std::vector<std::int64_t> rounded() {
    const double highest = *std::max_element(price_.begin(), price_.end());
    std::vector<std::int64_t> prices;
    for (double& price : price_) {
      price /= highest;
      prices.push_back(std::llround(price * static_cast<double>(kHighestPrice)));
    }
    for (std::size_t p = 0; p < down_.size(); ++p) {
      std::int64_t sum = 0;
      for (const int resource : network_.routes()[p].resources) sum += prices[resource];
      down_[p].price = up_[p].price = sum;
    }
    return prices;
  }

  /// The routes of a chunk's cheapest trees. What an allreduce pays at least: until a first rank
  /// has everything a tree up to it, and after that a message to every other rank; backwards in
  /// time, a tree down and before it a message from every other rank. The dearer of the two.
  CostedTree cheapest(const ChunkDemand& demand) const {
    if (!demand.reduce || !demand.broadcast)
      return cheapest(demand.root, demand.reduce ? up_ : down_, {});
    CostedTree up_first = cheapest(-1, up_, cheapest_into(network_.ranks(), down_));
    CostedTree down_last = cheapest(-1, down_, cheapest_into(network_.ranks(), up_));
    return up_first.cost >= down_last.cost ? up_first : down_last;
  }

  /// The cheapest tree from `root` (-1: from any), and `messages` of each other rank (empty: none).
  CostedTree cheapest(int root, const std::vector<PricedArc>& arcs,
                      const std::vector<int>& messages) const {
    CostedTree best;
    for (int start = 0; start < network_.ranks(); ++start) {
      if (root >= 0 && root != start) continue;
      CostedTree tree{cheapest_tree(network_.ranks(), start, arcs), 0};
      if (tree.routes.empty()) throw InputError("the routes do not join all ranks");
      for (int rank = 0; rank < static_cast<int>(messages.size()); ++rank) {
        if (rank == start) continue;
        if (messages[rank] < 0) throw InputError("the routes do not join all ranks");
        tree.routes.push_back(messages[rank]);
      }
      for (const int route : tree.routes) tree.cost += down_[route].price;
      if (best.routes.empty() || tree.cost < best.cost) best = std::move(tree);
    }
    return best;
  }

  void raise(const std::vector<double>& load, double rise) {
    const double fullest = *std::max_element(load.begin(), load.end());
    for (std::size_t r = 0; r < load.size() && fullest > 0; ++r)
      price_[r] *= 1 + rise * load[r] / fullest;
  }

  const Network& network_;
  const std::vector<ChunkDemand>& demands_;
  std::vector<double> price_;         ///< By resource.
  std::vector<PricedArc> down_, up_;  ///< By route; up: reversed.
};

}  // namespace
}  // namespace packing

TreeDuals tree_duals(const Network& network, const std::vector<ChunkDemand>& demands, int rounds) {
  packing::check_demands(network, demands);
  if (rounds < 1) throw InputError(std::to_string(rounds) + " rounds: expected 1 or more");
  return packing::PriceSearch(network, demands).run(rounds);
}

}  // namespace tuccl
