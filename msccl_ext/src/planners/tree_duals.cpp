// Prices of wires by which the cheapest trees together cost much: what they prove, no trees beat.
#include <algorithm>
#include <cmath>
#include <string>
#include <utility>

#include "tuccl/error.h"
#include "tuccl/packing.h"

namespace tuccl {
namespace tree_prices {
namespace {

/// Price of the dearest wire: whole, so that sums are exact.
constexpr std::int64_t kDearest = 1 << 24;
/// By what part the price of the wire that trees fill most rises, in the first and the last round.
constexpr double kFirstRise = 1.5, kLastRise = 0.0005;
constexpr int kMostRanks = 1024;

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

/// Numbers of pairs, each as often as a message takes it, and what they cost.
struct Bought {
  std::vector<int> pairs;
  std::int64_t cost = 0;
};

class Market {
 public:
  Market(const Ways& ways, const std::vector<Errand>& errands)
      : ways_(ways), errands_(errands), price_(ways.rates.size()), down_(ways.tails.size()) {
    for (std::size_t w = 0; w < price_.size(); ++w) price_[w] = 1 / ways.rates[w];
    for (std::size_t p = 0; p < down_.size(); ++p) down_[p] = {ways.tails[p], ways.heads[p], 0};
    up_ = down_;
    for (Link& link : up_) std::swap(link.tail, link.head);
  }

  TreePrices run(int rounds) {
    TreePrices best;
    double most = -1;
    for (int round = 0; round < rounds; ++round) {
      const double part = rounds > 1 ? static_cast<double>(round) / (rounds - 1) : 0.0;
      const std::vector<std::int64_t> whole = rounded();
      std::vector<double> fill(price_.size(), 0.0);
      std::int64_t cost = 0;
      for (const Errand& errand : errands_) {
        const Bought trees = cheapest(errand);
        cost += trees.cost;
        for (const int pair : trees.pairs)
          for (const int wire : ways_.wires[pair]) fill[wire] += 1 / ways_.rates[wire];
      }
      double paid = 0;
      for (std::size_t w = 0; w < whole.size(); ++w)
        paid += static_cast<double>(whole[w]) * ways_.rates[w];
      if (const double worth = static_cast<double>(cost) / paid; worth > most) {
        most = worth;
        best = {whole, cost};
      }
      raise(fill, kFirstRise * std::pow(kLastRise / kFirstRise, part));
    }
    return best;
  }

 private:
  /// Whole prices in proportion to `price_`, and those of the pairs.
  std::vector<std::int64_t> rounded() {
    const double dearest = *std::max_element(price_.begin(), price_.end());
    std::vector<std::int64_t> whole;
    for (double& price : price_) {
      price /= dearest;
      whole.push_back(std::llround(price * static_cast<double>(kDearest)));
    }
    for (std::size_t p = 0; p < down_.size(); ++p) {
      std::int64_t sum = 0;
      for (const int wire : ways_.wires[p]) sum += whole[wire];
      down_[p].price = up_[p].price = sum;
    }
    return whole;
  }

  Bought cheapest(const Errand& errand) const {
    if (errand.up && errand.down) return everywhere();
    Bought best;
    best.cost = -1;
    for (int root = 0; root < ways_.ranks; ++root) {
      if (errand.root >= 0 && errand.root != root) continue;
      Bought tree;
      buy_tree(tree, root, errand.up ? up_ : down_);
      if (best.cost < 0 || tree.cost < best.cost) best = std::move(tree);
    }
    return best;
  }

  /// What an allreduce costs at least. Up to the moment when a first rank has everything, a tree up
  /// to it was paid; after that every other rank gets a message still. The same holds backwards in
  /// time: a tree down, and before it a message from every other rank. The dearer of the two.
  Bought everywhere() const {
    Bought most;
    most.cost = -1;
    for (const bool rising : {true, false}) {
      const std::vector<int> last = nearest(rising ? down_ : up_);
      Bought least;
      least.cost = -1;
      for (int root = 0; root < ways_.ranks; ++root) {
        Bought all;
        buy_tree(all, root, rising ? up_ : down_);
        for (int rank = 0; rank < ways_.ranks; ++rank)
          if (rank != root) buy(all, last[rank]);
        if (least.cost < 0 || all.cost < least.cost) least = std::move(all);
      }
      if (least.cost > most.cost) most = std::move(least);
    }
    return most;
  }

  /// The cheapest link into each rank.
  std::vector<int> nearest(const std::vector<Link>& links) const {
    std::vector<int> into(ways_.ranks, -1);
    for (int n = 0; n < static_cast<int>(links.size()); ++n) {
      int& best = into[links[n].head];
      if (best < 0 || links[n].price < links[best].price) best = n;
    }
    return into;
  }

  void buy_tree(Bought& bought, int root, const std::vector<Link>& links) const {
    const std::vector<int> tree = cheapest_tree(ways_.ranks, root, links);
    if (tree.empty()) throw InputError("the pairs do not join all ranks");
    for (const int pair : tree) buy(bought, pair);
  }

  void buy(Bought& bought, int pair) const {
    if (pair < 0) throw InputError("the pairs do not join all ranks");
    bought.pairs.push_back(pair);
    bought.cost += down_[pair].price;
  }

  void raise(const std::vector<double>& fill, double rise) {
    const double fullest = *std::max_element(fill.begin(), fill.end());
    for (std::size_t w = 0; w < fill.size() && fullest > 0; ++w)
      price_[w] *= 1 + rise * fill[w] / fullest;
  }

  const Ways& ways_;
  const std::vector<Errand>& errands_;
  std::vector<double> price_;    ///< By wire.
  std::vector<Link> down_, up_;  ///< By pair; up: turned round.
};

}  // namespace
}  // namespace tree_prices

TreePrices price_trees(const Ways& ways, const std::vector<Errand>& errands, int rounds) {
  check_ways(ways, errands);
  if (ways.ranks > tree_prices::kMostRanks || ways.rates.empty() || rounds < 1)
    throw InputError(std::to_string(ways.ranks) + " ranks, " + std::to_string(ways.rates.size()) +
                     " wires, " + std::to_string(rounds) + " rounds: expected some of each");
  return tree_prices::Market(ways, errands).run(rounds);
}

}  // namespace tuccl
