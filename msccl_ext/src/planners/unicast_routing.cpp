// Unicast routing: a route for each chunk that one rank needs, around the others' load, then times.
#include <algorithm>
#include <numeric>
#include <utility>

#include "greedy_starts.h"
#include "planners/shortest_paths.h"
#include "tuccl/error.h"

namespace tuccl::greedy {
namespace {

using Path = std::vector<int>;  ///< Routes from a rank to another, in order.

/// Reroutes off the busiest resource that may fail before routing ends.
constexpr int kFailedReroutes = 32;

void check(const PeriodicNetwork& network, const std::vector<Demand>& demands,
           const std::vector<std::vector<int>>& relayed) {
  check(network);
  if (network.periods != 1) throw InputError("unicast is planned for a single period");
  const int ranks = static_cast<int>(network.hosts.size());
  const auto is_rank = [&](int rank) { return rank >= 0 && rank < ranks; };
  for (const Demand& demand : demands)
    if (!is_rank(demand.src) || !is_rank(demand.dst) || !is_rank(demand.owner))
      throw InputError("expected demands between ranks");
  if (!relayed.empty() && static_cast<int>(relayed.size()) != ranks)
    throw InputError("expected relay rules by rank");
}

/// Cheapest paths under costs that grow with the load of resources.
class UnicastRouting {
 public:
  UnicastRouting(const PeriodicNetwork& network, const std::vector<Demand>& demands,
                 const std::vector<std::vector<int>>& relayed)
      : network_(network),
        demands_(demands),
        graph_(network.hosts.size()),
        load_us_(network.resources, 0.0) {
    for (std::size_t n = 0; n < network.routes.size(); ++n) {
      const Route& route = network.routes[n];
      graph_[route.src].push_back({route.dst, static_cast<int>(n)});
      travel_us_.push_back(travel_us(network.routes[n]));
    }
    may_relay_.resize(relayed.size(), std::vector<char>(network.hosts.size(), 0));
    for (std::size_t rank = 0; rank < relayed.size(); ++rank)
      for (const int owner : relayed[rank]) may_relay_[rank].at(owner) = 1;
  }

  /// The path of each demand; where one has none, `unreachable` is its number.
  std::vector<Path> solve(SplitMix64& random, int& unreachable) {
    std::vector<int> order(demands_.size());
    std::iota(order.begin(), order.end(), 0);
    for (std::size_t n = order.size(); n > 1; --n)
      std::swap(order[n - 1], order[random.below(static_cast<std::uint32_t>(n))]);
    std::vector<Path> paths(demands_.size());
    for (const int number : order) {
      if (!cheapest_path(demands_[number], packing::kUnreachable, paths[number])) {
        unreachable = number;
        return {};
      }
      add_load(paths[number], 1.0);
    }
    reroute_busiest(paths, order);
    return paths;
  }

 private:
  void add_load(const Path& path, double sign) {
    for (const int route : path)
      for (const RouteHop& hop : network_.routes[route].hops)
        load_us_[hop.resource] += sign * hop.busy_us;
  }

  /// Reroutes demands over the busiest resource, while that relieves it.
  void reroute_busiest(std::vector<Path>& paths, const std::vector<int>& order) {
    int failures_left = kFailedReroutes;
    bool rerouted = true;
    while (rerouted && failures_left > 0) {
      rerouted = false;
      const double busiest_us = *std::max_element(load_us_.begin(), load_us_.end());
      for (const int number : order) {
        if (path_load_us(paths[number]) < busiest_us) continue;
        Path path;
        add_load(paths[number], -1.0);
        // Strictly below: the same load elsewhere is no relief.
        rerouted = cheapest_path(demands_[number], busiest_us * (1 - 1e-9), path);
        if (rerouted) paths[number].swap(path);
        add_load(paths[number], 1.0);
        if (rerouted || --failures_left == 0) break;
      }
    }
  }

  double path_load_us(const Path& path) const {
    double most = 0;
    for (const int route : path) most = std::max(most, route_load_us(route));
    return most;
  }

  double route_load_us(int route) const {
    double most = 0;
    for (const RouteHop& hop : network_.routes[route].hops)
      most = std::max(most, load_us_[hop.resource]);
    return most;
  }

  bool may_carry(const Route& route, const Demand& demand) const {
    return !route.inter || may_relay_.empty() || may_relay_[route.src][demand.owner];
  }

  bool stays_below(const Route& route, double limit_us) const {
    return std::all_of(route.hops.begin(), route.hops.end(), [&](const RouteHop& hop) {
      return load_us_[hop.resource] + hop.busy_us < limit_us;
    });
  }

  /// Finds the quickest path behind the loads so far that keeps each load below `limit_us`.
  bool cheapest_path(const Demand& demand, double limit_us, Path& path) const {
    const auto cost_us = [&](double spent_us, int number) {
      const Route& route = network_.routes[number];
      const bool is_usable = may_carry(route, demand) && stays_below(route, limit_us);
      return is_usable ? spent_us + travel_us_[number] + route_load_us(number)
                       : packing::kUnreachable;
    };
    const auto paths = packing::shortest_paths_by(graph_, cost_us, {demand.src}, demand.dst);
    if (paths.distance[demand.dst] == packing::kUnreachable) return false;
    for (int rank = demand.dst; rank != demand.src; rank = network_.routes[path.back()].src)
      path.push_back(paths.last_arc[rank]);
    std::reverse(path.begin(), path.end());
    return true;
  }

  const PeriodicNetwork& network_;
  const std::vector<Demand>& demands_;
  packing::AdjacencyList graph_;
  std::vector<double> travel_us_;             ///< By route.
  std::vector<std::vector<char>> may_relay_;  ///< By rank and owner; empty: no rule.
  std::vector<double> load_us_;               ///< By resource.
};

/// The sends along the paths; those with most of their path before them go first.
std::vector<Send> sends_along(const PeriodicNetwork& network, const std::vector<Path>& paths,
                              SplitMix64& random) {
  std::vector<Send> sends;
  for (std::size_t chunk = 0; chunk < paths.size(); ++chunk) {
    double left_us = 0;
    for (const int route : paths[chunk]) left_us += travel_us(network.routes[route]);
    std::vector<int> after;
    for (const int route : paths[chunk]) {
      const double priority = left_us + 1e-6 * random.below(1000);
      sends.push_back({static_cast<int>(chunk), route, false, 0, 0, after, priority});
      after = {static_cast<int>(sends.size()) - 1};
      left_us -= travel_us(network.routes[route]);
    }
  }
  return list_schedule(network, sends);
}

}  // namespace

GreedyResult plan_unicast(const PeriodicNetwork& network, const std::vector<Demand>& demands,
                          const std::vector<std::vector<int>>& relayed, const Search& search) {
  check(network, demands, relayed);
  return best_start(0, std::max(1, search.starts), search.threads, [&](int start) {
    SplitMix64 random(search.seed * 1000003 + start);
    GreedyResult result;
    const auto paths = UnicastRouting(network, demands, relayed).solve(random, result.chunk);
    if (result.chunk >= 0) {
      result.rank = demands[result.chunk].dst;
      return result;
    }
    result.start = start;
    result.sends = sends_along(network, paths, random);
    result.time_us = estimated_us(network, result.sends);
    return result;
  });
}

}  // namespace tuccl::greedy
