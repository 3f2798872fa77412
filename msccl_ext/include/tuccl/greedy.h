// Greedy synthesis on a time-expanded network: link-chunk matching and unicast routing.
#pragma once
#include <cstdint>
#include <vector>

#include "tuccl/network.h"

namespace tuccl::greedy {

/// A resource on a route, and how long a chunk occupies it.
struct RouteHop {
  int resource = 0;
  double busy_us = 0;
};

/// A directed pair of ranks that chunks may be sent over.
struct Route {
  int src = 0;
  int dst = 0;
  int period = 0;      ///< Periods from the source's to the destination's (see PeriodicNetwork).
  bool inter = false;  ///< Whether it joins two hosts.
  double alpha_us = 0;
  std::vector<RouteHop> hops;  ///< In the order in which a message takes them.
};

/// Routes of a machine that looks the same from each of `periods` equal groups of consecutive
/// ranks, for chunks of one size. Only the first group is planned; all others do the same.
struct PeriodicNetwork {
  int periods = 1;
  std::vector<int> hosts;  ///< By rank of a period.
  int resources = 0;
  double tiles = 1;  ///< Passes of the executor over the sends; times are those of one tile.
  std::vector<Route> routes;
};

/// Equal groups of consecutive ranks (periods) that a rotation of the ranks permutes.
struct Rotation {
  int ranks = 0;                   ///< Of a period; all where no symmetry is used.
  std::vector<int> orbit;          ///< By resource: the number of its orbit.
  std::vector<double> orbit_load;  ///< By orbit: periods whose messages each resource carries.
};

/// The routes with numbers `routes` of a network, all from its first period, for chunks that are
/// sent in `tiles` tiles; `reverse`: with source and destination exchanged. `hosts` are by rank.
/// Throws InputError where arguments do not fit together.
PeriodicNetwork periodic_network(const Network& network, const std::vector<int>& hosts,
                                 const Rotation& rotation, const std::vector<int>& routes,
                                 double chunk_bytes, int tiles = 1, bool reverse = false);

/// The same for all routes of a network without symmetry, whose hosts do not matter.
PeriodicNetwork periodic_network(const Network& network, double chunk_bytes);

/// A chunk over a route, in us. Chunks are numbered as the sender sees them: those of the period
/// `n` before it follow `n` times the chunks of one period.
struct Send {
  int chunk = 0;
  int route = 0;
  bool reduce = false;  ///< Whether the receiver adds it to what it has.
  double start_us = 0;
  double end_us = 0;
  std::vector<int> after = {};  ///< Earlier sends that it waits for.
  double priority = 0;          ///< Of sends that wait for a route, the highest goes first.
};

/// How many starts, drawn from which seed, on how many threads (0: one a core).
struct Search {
  int starts = 1;
  std::uint64_t seed = 0;
  int threads = 0;
};

/// The best of several starts.
struct GreedyResult {
  double time_us = 0;       ///< Estimate: the first tile's, and the busiest resource's for others.
  int start = -1;           ///< The start that gave it; -1 where none gave any.
  std::vector<Send> sends;  ///< In order of start.
  int chunk = -1;           ///< Without sends: a chunk, and a rank that it cannot reach.
  int rank = -1;
};

/// A chunk that one rank has and another needs. Only senders whose rule names `owner` may take it
/// off its host.
struct Demand {
  int src = 0;
  int dst = 0;
  int owner = 0;
};

/// Sends that bring each chunk to each rank once. `sources[c]` has chunk c at first; a rank may
/// take off its host what `relayed[rank]` names (empty: anything). Throws InputError where
/// arguments do not fit together.
GreedyResult plan_multicast(const PeriodicNetwork& network, const std::vector<int>& sources,
                            const std::vector<std::vector<int>>& relayed, const Search& search);

/// Sends that meet each demand, by routes that balance the load; `relayed` names the owners whose
/// chunks a rank may take off its host (empty: anyone's). Throws InputError where arguments do not
/// fit together.
GreedyResult plan_unicast(const PeriodicNetwork& network, const std::vector<Demand>& demands,
                          const std::vector<std::vector<int>>& relayed, const Search& search);

/// The sends with their times, in order of start, if routes send as soon as their resources are
/// free and a resource serves one send at a time (Graham's list scheduling).
std::vector<Send> list_schedule(const PeriodicNetwork& network, const std::vector<Send>& sends);

}  // namespace tuccl::greedy
