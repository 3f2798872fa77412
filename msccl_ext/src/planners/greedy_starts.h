// What the greedy planners share: checks, randomness, and many starts on several threads.
#pragma once
#include <cstdint>
#include <functional>
#include <vector>

#include "tuccl/greedy.h"

namespace tuccl::greedy {

/// Times that differ by less are the same, in us: sums of the same passages in another order do.
inline constexpr double kMomentUs = 1e-7;

/// A small generator that gives the same numbers everywhere.
class Dice {
 public:
  explicit Dice(std::uint64_t seed) : state_(seed * 0x9E3779B97F4A7C15ULL + 0xD1B54A32D192ED03ULL) {
    next();
    next();
  }

  /// SplitMix64 (Steele, Lea, Flood 2014).
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

/// Throws InputError where lanes name what is not there.
void check(const Roads& roads);

/// Us from the start of a send over the lane to its arrival.
double travel_us(const Lane& lane);

/// The best of the plans that `plan(start)` makes for starts `from` to `to`: the least estimate,
/// then the first start, so it does not depend on how threads take turns.
GreedyPlan best_of(int from, int to, int threads, const std::function<GreedyPlan(int)>& plan);

}  // namespace tuccl::greedy
