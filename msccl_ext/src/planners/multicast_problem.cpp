#include "multicast_problem.h"

#include <algorithm>
#include <limits>
#include <string>

#include "greedy_starts.h"
#include "planners/shortest_paths.h"
#include "tuccl/error.h"

namespace tuccl::greedy {
namespace {

constexpr std::size_t kMaxChunks = 1 << 20;

void check(const PeriodicNetwork& network, const std::vector<int>& sources,
           const std::vector<std::vector<int>>& rule) {
  check(network);
  const std::size_t ranks = network.hosts.size();
  if (sources.empty() || sources.size() * network.periods > kMaxChunks)
    throw InputError(std::to_string(sources.size()) + " chunks: expected 1 to " +
                     std::to_string(kMaxChunks));
  for (const int rank : sources)
    if (rank < 0 || rank >= static_cast<int>(ranks)) throw InputError("expected chunks of ranks");
  if (!rule.empty() && (rule.size() != ranks || network.periods > 1))
    throw InputError("expected relay rules by rank of a single period");
  for (const auto& chunks : rule)
    for (const int chunk : chunks)
      if (chunk < 0 || chunk >= static_cast<int>(sources.size()))
        throw InputError("relay rule: no such chunk");
}

}  // namespace

MulticastProblem::MulticastProblem(const PeriodicNetwork& all,
                                   const std::vector<int>& chunk_sources,
                                   const std::vector<std::vector<int>>& rule)
    : network((check(all, chunk_sources, rule), all)),
      sources(chunk_sources),
      ranks(static_cast<int>(all.hosts.size())),
      chunks_per_period(static_cast<int>(chunk_sources.size())),
      chunks(chunks_per_period * all.periods),
      hosts(1 + *std::max_element(all.hosts.begin(), all.hosts.end())),
      relayed(ranks, chunks),
      out(ranks),
      into(ranks),
      sharing(all.resources) {
  for (int n = 0; n < static_cast<int>(network.routes.size()); ++n) {
    const Route& route = network.routes[n];
    travel_us.push_back(greedy::travel_us(route));
    distance.push_back(rank_distance(network, route));
    out[route.src].push_back(n);
    into[route.dst].push_back(n);
    for (const RouteHop& hop : route.hops) sharing[hop.resource].push_back(n);
  }
  for (int rank = 0; rank < ranks; ++rank) {
    rate_into.push_back(total_rate_into(rank));
    if (rule.empty())
      std::fill_n(relayed.of(rank), relayed.words(), ~Word(0));
    else
      for (const int chunk : rule[rank]) relayed.insert(rank, chunk);
  }
  find_shortest_paths();
}

bool MulticastProblem::advances(int chunk, const Route& route) const {
  const auto& fewest = hops[sources[chunk % chunks_per_period]];
  const int period = chunk / chunks_per_period;
  const int next = (period + route.period) % network.periods;
  return fewest[next * ranks + route.dst] == fewest[period * ranks + route.src] + 1;
}

double MulticastProblem::total_rate_into(int rank) const {
  std::vector<int> counted;
  double rate = 0;
  for (const int number : into[rank]) {
    const auto& path = network.routes[number].hops;
    if (path.empty()) return std::numeric_limits<double>::infinity();
    if (std::find(counted.begin(), counted.end(), path.back().resource) != counted.end()) continue;
    counted.push_back(path.back().resource);
    rate += 1 / path.back().busy_us;
  }
  return rate;
}

void MulticastProblem::find_shortest_paths() {
  packing::AdjacencyList in_hosts(ranks), unrolled(std::size_t(ranks) * network.periods);
  for (int n = 0; n < static_cast<int>(network.routes.size()); ++n) {
    const Route& route = network.routes[n];
    if (!route.inter && route.period == 0) in_hosts[route.src].push_back({route.dst, n});
    for (int period = 0; period < network.periods; ++period) {
      const int next = (period + route.period) % network.periods;
      unrolled[period * ranks + route.src].push_back({next * ranks + route.dst, n});
    }
  }
  for (int rank = 0; rank < ranks; ++rank) {
    shortest.push_back(packing::shortest_paths(in_hosts, travel_us, {rank}).distance);
    hops.push_back(
        packing::shortest_paths_by(unrolled, [](double count, int) { return count + 1; }, {rank})
            .distance);
  }
}

}  // namespace tuccl::greedy
