#include "greedy_starts.h"

#include <atomic>
#include <cmath>
#include <exception>
#include <mutex>
#include <string>
#include <thread>
#include <tuple>

#include "tuccl/error.h"

namespace tuccl::greedy {
namespace {

constexpr int kMaxThreads = 256;
constexpr int kMaxRanks = 4096;

void check(const PeriodicNetwork& network, const Route& route, const std::string& where) {
  const int ranks = static_cast<int>(network.hosts.size());
  const auto is_rank = [&](int rank) { return rank >= 0 && rank < ranks; };
  if (!is_rank(route.src) || !is_rank(route.dst) || route.period < 0 ||
      route.period >= network.periods || (route.src == route.dst && route.period == 0))
    throw InputError(where + ": expected two ranks");
  if (!(route.alpha_us >= 0) || !std::isfinite(route.alpha_us))
    throw InputError(where + ": expected a latency of 0 us or more");
  for (const RouteHop& hop : route.hops)
    if (hop.resource < 0 || hop.resource >= network.resources || !(hop.busy_us > 0) ||
        !std::isfinite(hop.busy_us))
      throw InputError(where + ": expected resources, each busy for some time");
}

}  // namespace

void check(const PeriodicNetwork& network) {
  const int ranks = static_cast<int>(network.hosts.size());
  if (ranks < 1 || ranks > kMaxRanks || network.periods < 1 || network.periods > kMaxRanks)
    throw InputError(std::to_string(ranks) + " ranks in " + std::to_string(network.periods) +
                     " periods: expected 1 to " + std::to_string(kMaxRanks) + " of each");
  for (const int host : network.hosts)
    if (host < 0 || host >= ranks)
      throw InputError("expected hosts numbered below the number of ranks");
  for (std::size_t n = 0; n < network.routes.size(); ++n)
    check(network, network.routes[n], "route " + std::to_string(n));
  if (!(network.tiles >= 1) || !std::isfinite(network.tiles))
    throw InputError("expected at least one tile");
}

double travel_us(const Route& route) {
  double slowest = 0;
  for (const RouteHop& hop : route.hops) slowest = std::max(slowest, hop.busy_us);
  return route.alpha_us + slowest;
}

int rank_distance(const PeriodicNetwork& network, const Route& route) {
  const int ranks = static_cast<int>(network.hosts.size());
  const int total = ranks * network.periods;
  return (route.period * ranks + route.dst - route.src + total) % total;
}

double estimated_us(const PeriodicNetwork& network, const std::vector<Send>& sends) {
  std::vector<double> load_us(network.resources, 0.0);
  double makespan = 0;
  for (const Send& send : sends) {
    makespan = std::max(makespan, send.end_us);
    for (const RouteHop& hop : network.routes[send.route].hops)
      load_us[hop.resource] += hop.busy_us;
  }
  const double busiest = load_us.empty() ? 0.0 : *std::max_element(load_us.begin(), load_us.end());
  return makespan + (network.tiles - 1) * busiest;
}

GreedyResult best_start(int from, int to, int threads,
                        const std::function<GreedyResult(int)>& attempt) {
  if (threads < 0 || threads > kMaxThreads)
    throw InputError("threads " + std::to_string(threads) + ": expected 0 (one a core) to " +
                     std::to_string(kMaxThreads));
  const auto rank = [](const GreedyResult& of) {
    return std::make_tuple(of.start < 0, of.time_us, of.start);
  };
  std::atomic<int> next = from;
  GreedyResult best;
  bool any = false;
  std::exception_ptr failure;
  std::mutex mutex;
  const auto work = [&] {
    for (int start = next++; start < to; start = next++) try {
        GreedyResult candidate = attempt(start);
        const std::scoped_lock lock(mutex);
        if (!any || rank(candidate) < rank(best)) best = std::move(candidate);
        any = true;
      } catch (...) {
        const std::scoped_lock lock(mutex);
        failure = std::current_exception();
      }
  };
  const int cores = static_cast<int>(std::max(1U, std::thread::hardware_concurrency()));
  std::vector<std::jthread> helpers;
  for (int n = std::min(threads > 0 ? threads : cores, to - from); n > 1; --n)
    helpers.emplace_back(work);
  work();
  helpers.clear();  // joins
  if (failure) std::rethrow_exception(failure);
  return best;
}

}  // namespace tuccl::greedy
