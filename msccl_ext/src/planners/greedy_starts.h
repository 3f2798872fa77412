// Parts that the greedy planners share: checks, resources, randomness and starts on threads.
#pragma once
#include <algorithm>
#include <cstdint>
#include <functional>
#include <vector>

#include "tuccl/greedy.h"

namespace tuccl::greedy {

/// Times that differ by less are equal, in us: sums of the same terms in another order are.
inline constexpr double kEpsilonUs = 1e-7;

/// SplitMix64 (Steele, Lea, Flood 2014): the same numbers on every machine.
class SplitMix64 {
 public:
  explicit SplitMix64(std::uint64_t seed)
      : state_(seed * 0x9E3779B97F4A7C15ULL + 0xD1B54A32D192ED03ULL) {
    next();
    next();
  }

  std::uint64_t next() {
    std::uint64_t z = (state_ += 0x9E3779B97F4A7C15ULL);
    z = (z ^ (z >> 30)) * 0xBF58476D1CE4E5B9ULL;
    z = (z ^ (z >> 27)) * 0x94D049BB133111EBULL;
    return z ^ (z >> 31);
  }

  std::uint32_t below(std::uint32_t count) {
    return static_cast<std::uint32_t>(((next() >> 32) * count) >> 32);
  }

 private:
  std::uint64_t state_;
};

/// The time from which each resource is free, in us.
class ResourceClock {
 public:
  explicit ResourceClock(int resources) : free_us_(resources, 0.0) {}

  double free_us(int resource) const { return free_us_[resource]; }

  double free_us(const Route& route) const {
    double latest = 0;
    for (const RouteHop& hop : route.hops) latest = std::max(latest, free_us_[hop.resource]);
    return latest;
  }

  void occupy(const Route& route, double now_us) {
    for (const RouteHop& hop : route.hops)
      free_us_[hop.resource] = std::max(free_us_[hop.resource], now_us) + hop.busy_us;
  }

 private:
  std::vector<double> free_us_;
};

/// Throws InputError where routes name what is not there.
void check(const PeriodicNetwork& network);

/// Time from the start of a send over the route to its arrival, in us.
double travel_us(const Route& route);

/// Ranks from the source of the route on to its destination, counted round all periods.
int rank_distance(const PeriodicNetwork& network, const Route& route);

/// The first tile's time, and the busiest resource's for each further one.
double estimated_us(const PeriodicNetwork& network, const std::vector<Send>& sends);

/// The best of the results that `attempt(start)` gives for starts `from` to `to`: least estimate,
/// then first start, whatever the threads' order.
GreedyResult best_start(int from, int to, int threads,
                        const std::function<GreedyResult(int)>& attempt);

}  // namespace tuccl::greedy
