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

/// Price of the dearest resource: whole, so that sums are exact.
constexpr std::int64_t kDearest = 1 << 24;
/// By what part the price of the resource that trees load most rises, in the first and the last
/// round.
constexpr double kFirstRise = 1.5, kLastRise = 0.0005;

struct Link {
  int tail = 0, head = 0;
  std::int64_t price = 0;
};

/// The links of the cheapest tree from `root` to all of `vertices`, by number; empty where there is
/// none. Cycles of cheapest links are drawn together, and opened where the tree enters them.
/// (Chu and Liu 1965, Edmonds 1967.)
std::vector<int> cheapest_tree(int vertices, int root, const std::vector<Link>& links) {
  std::vector<int> into(vertices, -1);
  for (int n = 0; n < static_cast<int>(links.size()); ++n) {
    const Link& link = links[n];
    if (link.tail == link.head || link.head == root) continue;
    int& best = into[link.head];
    if (best < 0 || link.price < links[best].price) best = n;
  }
  std::vector<int> drawn(vertices, -1), seen(vertices, -1);
  std::vector<bool> circular(vertices, false);
  int count = 0;
  for (int start = 0; start < vertices; ++start) {
    if (start != root && into[start] < 0) return {};
    int at = start;
    for (; at != root && seen[at] < 0; at = links[into[at]].tail) seen[at] = start;
    if (at == root || seen[at] != start || drawn[at] >= 0) continue;
    for (; drawn[at] < 0; at = links[into[at]].tail) {
      drawn[at] = count;
      circular[at] = true;
    }
    ++count;
  }
  std::vector<int> tree;
  if (count == 0) {
    for (int vertex = 0; vertex < vertices; ++vertex)
      if (vertex != root) tree.push_back(into[vertex]);
    return tree;
  }
  for (int& vertex : drawn)
    if (vertex < 0) vertex = count++;
  std::vector<Link> shorter;
  std::vector<int> number;
  for (int n = 0; n < static_cast<int>(links.size()); ++n) {
    const Link& link = links[n];
    if (drawn[link.tail] == drawn[link.head]) continue;
    const std::int64_t saved = circular[link.head] ? links[into[link.head]].price : 0;
    shorter.push_back({drawn[link.tail], drawn[link.head], link.price - saved});
    number.push_back(n);
  }
  const std::vector<int> outer = cheapest_tree(count, drawn[root], shorter);
  if (outer.empty() && count > 1) return {};
  for (const int chosen : outer) {
    tree.push_back(number[chosen]);
    circular[links[number[chosen]].head] = false;
  }
  for (int vertex = 0; vertex < vertices; ++vertex)
    if (circular[vertex]) tree.push_back(into[vertex]);
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
      const std::vector<std::int64_t> whole = rounded();
      std::vector<double> fill(price_.size(), 0.0);
      std::int64_t cost = 0;
      for (const ChunkDemand& demand : demands_) {
        const CostedTree tree = cheapest(demand);
        cost += tree.cost;
        for (const int route : tree.routes)
          for (const int resource : network_.routes()[route].resources)
            fill[resource] += 1 / rate(resource);
      }
      double paid = 0;
      for (std::size_t r = 0; r < whole.size(); ++r)
        paid += static_cast<double>(whole[r]) * rate(r);
      if (const double worth = static_cast<double>(cost) / paid; worth > most) {
        most = worth;
        best = {whole, cost};
      }
      raise(fill, kFirstRise * std::pow(kLastRise / kFirstRise, part));
    }
    return best;
  }

 private:
  double rate(std::size_t resource) const { return network_.resources()[resource].bandwidth_gbs; }

  /// Whole prices in proportion to `price_`, and the prices of the routes.
  std::vector<std::int64_t> rounded() {
    const double dearest = *std::max_element(price_.begin(), price_.end());
    std::vector<std::int64_t> whole;
    for (double& price : price_) {
      price /= dearest;
      whole.push_back(std::llround(price * static_cast<double>(kDearest)));
    }
    for (std::size_t p = 0; p < down_.size(); ++p) {
      std::int64_t sum = 0;
      for (const int resource : network_.routes()[p].resources) sum += whole[resource];
      down_[p].price = up_[p].price = sum;
    }
    return whole;
  }

  CostedTree cheapest(const ChunkDemand& demand) const {
    if (demand.reduce && demand.broadcast) return everywhere();
    CostedTree best;
    best.cost = -1;
    for (int root = 0; root < network_.ranks(); ++root) {
      if (demand.root >= 0 && demand.root != root) continue;
      CostedTree tree;
      buy_tree(tree, root, demand.reduce ? up_ : down_);
      if (best.cost < 0 || tree.cost < best.cost) best = std::move(tree);
    }
    return best;
  }

  /// What an allreduce costs at least. Up to the moment when a first rank has everything, a tree up
  /// to it was paid; after that every other rank gets a message still. The same holds backwards in
  /// time: a tree down, and before it a message from every other rank. The dearer of the two.
  CostedTree everywhere() const {
    CostedTree most;
    most.cost = -1;
    for (const bool rising : {true, false}) {
      const std::vector<int> last = nearest(rising ? down_ : up_);
      CostedTree least;
      least.cost = -1;
      for (int root = 0; root < network_.ranks(); ++root) {
        CostedTree all;
        buy_tree(all, root, rising ? up_ : down_);
        for (int rank = 0; rank < network_.ranks(); ++rank)
          if (rank != root) buy(all, last[rank]);
        if (least.cost < 0 || all.cost < least.cost) least = std::move(all);
      }
      if (least.cost > most.cost) most = std::move(least);
    }
    return most;
  }

  /// The cheapest link into each rank.
  std::vector<int> nearest(const std::vector<Link>& links) const {
    std::vector<int> into(network_.ranks(), -1);
    for (int n = 0; n < static_cast<int>(links.size()); ++n) {
      int& best = into[links[n].head];
      if (best < 0 || links[n].price < links[best].price) best = n;
    }
    return into;
  }

  void buy_tree(CostedTree& tree, int root, const std::vector<Link>& links) const {
    const std::vector<int> cheapest = cheapest_tree(network_.ranks(), root, links);
    if (cheapest.empty()) throw InputError("the routes do not join all ranks");
    for (const int route : cheapest) buy(tree, route);
  }

  void buy(CostedTree& tree, int route) const {
    if (route < 0) throw InputError("the routes do not join all ranks");
    tree.routes.push_back(route);
    tree.cost += down_[route].price;
  }

  void raise(const std::vector<double>& fill, double rise) {
    const double fullest = *std::max_element(fill.begin(), fill.end());
    for (std::size_t w = 0; w < fill.size() && fullest > 0; ++w)
      price_[w] *= 1 + rise * fill[w] / fullest;
  }

  const Network& network_;
  const std::vector<ChunkDemand>& demands_;
  std::vector<double> price_;    ///< By resource.
  std::vector<Link> down_, up_;  ///< By route; up: reversed.
};

}  // namespace
}  // namespace packing

TreeDuals tree_duals(const Network& network, const std::vector<ChunkDemand>& demands, int rounds) {
  packing::check_demands(network, demands);
  if (rounds < 1) throw InputError(std::to_string(rounds) + " rounds: expected 1 or more");
  return packing::PriceSearch(network, demands).run(rounds);
}

}  // namespace tuccl
