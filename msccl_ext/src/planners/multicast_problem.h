// A multicast as all starts of link-chunk matching see it: sources, routes and distances.
#pragma once
#include <bit>
#include <cstdint>
#include <vector>

#include "tuccl/greedy.h"

namespace tuccl::greedy {

using Word = std::uint64_t;
inline constexpr int kBits = 64;

/// A set of chunks for each of several ranks or hosts.
class ChunkSets {
 public:
  ChunkSets(int owners, int chunks)
      : words_((chunks + kBits - 1) / kBits), bits_(std::size_t(owners) * words_) {}

  Word* of(int owner) { return bits_.data() + std::size_t(owner) * words_; }
  const Word* of(int owner) const { return bits_.data() + std::size_t(owner) * words_; }
  bool has(int owner, int chunk) const { return of(owner)[chunk / kBits] >> (chunk % kBits) & 1; }
  void insert(int owner, int chunk) { of(owner)[chunk / kBits] |= Word(1) << (chunk % kBits); }
  void erase(int owner, int chunk) { of(owner)[chunk / kBits] &= ~(Word(1) << (chunk % kBits)); }
  int words() const { return words_; }

 private:
  int words_;
  std::vector<Word> bits_;
};

/// Chunks of the period `n` before a rank's own have numbers from `n * chunks_per_period` on.
struct MulticastProblem {
  const PeriodicNetwork& network;
  const std::vector<int>& sources;  ///< By chunk of a period.
  int ranks, chunks_per_period, chunks, hosts;
  ChunkSets relayed;                          ///< What each rank may take off its host.
  std::vector<double> travel_us;              ///< By route.
  std::vector<int> distance;                  ///< By route, in ranks.
  std::vector<std::vector<int>> out, into;    ///< Routes by rank.
  std::vector<std::vector<int>> sharing;      ///< Routes by resource.
  std::vector<double> rate_into;              ///< By rank: chunks a us that can arrive.
  std::vector<std::vector<double>> shortest;  ///< Inside hosts: least time by idle routes, in us.
  std::vector<std::vector<double>> hops;      ///< Fewest sends, by source, period and rank.

  /// Throws InputError where sources or relay rules do not fit the network.
  MulticastProblem(const PeriodicNetwork& all, const std::vector<int>& chunk_sources,
                   const std::vector<std::vector<int>>& rule);

  /// The number by which the route's destination knows its source's chunk, and the reverse.
  int at_dst(int chunk, const Route& route) const {
    return (chunk + route.period * chunks_per_period) % chunks;
  }
  int at_src(int chunk, const Route& route) const {
    return (chunk + chunks - route.period * chunks_per_period) % chunks;
  }

  /// Whether the route brings its source's chunk farther along a shortest path.
  bool advances(int chunk, const Route& route) const;

 private:
  double total_rate_into(int rank) const;
  void find_shortest_paths();
};

}  // namespace tuccl::greedy
