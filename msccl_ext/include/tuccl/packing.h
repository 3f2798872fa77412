// Packing of weighted trees: which capacities suffice, relays split off, trees found.
#pragma once
#include <cstdint>
#include <utility>
#include <vector>

namespace tuccl {

/// A directed arc of whole capacity.
struct Arc {
  int tail = 0;
  int head = 0;
  std::int64_t capacity = 0;
};

/// What a network lacks: units that some rank cannot get, and the side of the cut that stops them.
struct Shortfall {
  std::int64_t units = 0;
  std::vector<int> side;
};

/// `weight` equal trees that span all ranks from `root`.
struct Tree {
  int root = 0;
  std::int64_t weight = 0;
  std::vector<int> parent;  ///< By rank; -1 at the root.
  std::vector<int> order;   ///< Ranks, each after its parent.
};

/// How many of the units that `feeds` gives the ranks (the first vertices) some rank cannot get.
/// Throws InputError where arguments do not fit together.
Shortfall shortfall(int vertices, const std::vector<Arc>& arcs,
                    const std::vector<std::int64_t>& feeds);

/// Whether every rank gets all units: `shortfall` is 0, found out sooner where it is not.
bool suffices(int vertices, const std::vector<Arc>& arcs, const std::vector<std::int64_t>& feeds);

/// For each group of ranks (the first vertices) the units that can leave it for the other ranks.
/// Throws InputError where arguments do not fit together.
std::vector<std::int64_t> isolation(int vertices, const std::vector<Arc>& arcs, int ranks,
                                    const std::vector<std::vector<int>>& groups);

/// The largest distance between two ranks over `arcs` (tail, head) of `lengths`; infinity where no
/// way leads. Throws InputError where arguments do not fit together.
double diameter(int vertices, const std::vector<std::pair<int, int>>& arcs,
                const std::vector<double>& lengths, int ranks);

/// The arcs between ranks that stand for the ways through relays (vertices from `feeds.size()` on),
/// such that every rank still gets all units. Capacity that no rank needs may be lost.
std::vector<Arc> split_relays(int vertices, const std::vector<Arc>& arcs,
                              const std::vector<std::int64_t>& feeds);

/// Trees that need no more than the arcs have: `feeds[r]` in all from each rank r. Throws
/// InputError where some rank cannot get all units.
std::vector<Tree> pack_trees(const std::vector<Arc>& arcs, const std::vector<std::int64_t>& feeds);

/// Pairs of ranks that messages may take, and the wires that each pair shares.
struct Ways {
  int ranks = 0;
  std::vector<int> tails, heads;        ///< By pair.
  std::vector<std::vector<int>> wires;  ///< By pair.
  std::vector<double> rates;            ///< By wire.
};

/// A chunk that goes up a tree to its root, down one from there, or both; root -1: wherever is
/// best.
struct Errand {
  int root = -1;
  bool up = false;
  bool down = false;
};

/// What an errand was given: its root and, for each way it goes, the parent of each rank.
struct Journey {
  int root = 0;
  std::vector<int> up, down;  ///< -1 at the root; empty where it does not go that way.
};

/// How long to look for better trees, and which.
struct Effort {
  int rounds = 0;      ///< At most.
  double target = 0;   ///< Enough where the busiest wire needs no more than this.
  int deepest_up = 0;  ///< Most arcs from a rank to its root.
  int deepest_down = 0;
};

/// Trees for all errands over the fixed ways, chosen one by one and then rerouted in turn.
/// Throws InputError where the pairs do not join all ranks by trees so shallow.
std::vector<Journey> reroute(const Ways& ways, const std::vector<Errand>& errands,
                             const Effort& effort);

/// Throws InputError where ranks, pairs, wires and roots do not fit together.
void check_ways(const Ways& ways, const std::vector<Errand>& errands);

/// Whole prices of wires, and what the cheapest trees of all errands cost at them.
struct TreePrices {
  std::vector<std::int64_t> price;  ///< By wire.
  std::int64_t cost = 0;
};

/// Prices at which trees for all errands are dear for what all the wires' rates cost: `cost` over
/// the sum of price times rate is a time that no trees over these ways can beat. Every round raises
/// the prices of what the cheapest trees fill. Throws InputError where pairs do not join all ranks.
TreePrices price_trees(const Ways& ways, const std::vector<Errand>& errands, int rounds);

/// A chunk that is to get from one rank to another.
struct Parcel {
  int src = 0;
  int dst = 0;
};

/// The pairs that each parcel takes in turn, such that the busiest wire has little to carry; stops
/// early where it needs no more than `target`. Throws InputError where no pairs lead there.
std::vector<std::vector<int>> route_parcels(const Ways& ways, const std::vector<Parcel>& parcels,
                                            int rounds, double target);

/// A price for each arc by which all ways between ranks (the first vertices) together are dear
/// for what the capacities cost: where every rank has a chunk for every other, the sum of the
/// cheapest ways over the price of all capacities is a time that no routing can beat.
std::vector<double> scarcity(int vertices, const std::vector<Arc>& arcs, int ranks, int rounds);

}  // namespace tuccl
