#include "greedy_starts.h"

#include <algorithm>
#include <atomic>
#include <cmath>
#include <exception>
#include <mutex>
#include <string>
#include <thread>

#include "tuccl/error.h"

namespace tuccl {
namespace greedy {
namespace {

constexpr int kMostThreads = 256;
constexpr int kMostRanks = 4096;

bool better(const GreedyPlan& one, const GreedyPlan& other) {
  if ((one.start < 0) != (other.start < 0)) return other.start < 0;
  if (one.time_us != other.time_us) return one.time_us < other.time_us;
  return one.start < other.start;
}

}  // namespace

double travel_us(const Lane& lane) {
  double slowest = 0;
  for (const Passage& passage : lane.way) slowest = std::max(slowest, passage.us);
  return lane.alpha_us + slowest;
}

void check(const Roads& roads) {
  const int ranks = static_cast<int>(roads.hosts.size());
  if (ranks < 1 || ranks > kMostRanks || roads.blocks < 1 || roads.blocks > kMostRanks)
    throw InputError(std::to_string(ranks) + " ranks in " + std::to_string(roads.blocks) +
                     " blocks: expected 1 to " + std::to_string(kMostRanks) + " of each");
  const auto ranked = [&](int rank) { return rank >= 0 && rank < ranks; };
  for (const int host : roads.hosts)
    if (!ranked(host)) throw InputError("expected hosts numbered below the number of ranks");
  for (std::size_t n = 0; n < roads.lanes.size(); ++n) {
    const Lane& lane = roads.lanes[n];
    const bool turns = lane.turn >= 0 && lane.turn < roads.blocks;
    if (!ranked(lane.tail) || !ranked(lane.head) || !turns ||
        (lane.tail == lane.head && lane.turn == 0))
      throw InputError("lane " + std::to_string(n) + ": expected two ranks");
    if (!(lane.alpha_us >= 0) || !std::isfinite(lane.alpha_us))
      throw InputError("lane " + std::to_string(n) + ": expected a latency of 0 us or more");
    for (const Passage& passage : lane.way)
      if (passage.wire < 0 || passage.wire >= roads.wires || !(passage.us > 0) ||
          !std::isfinite(passage.us))
        throw InputError("lane " + std::to_string(n) + ": expected wires, each for some time");
  }
  if (!(roads.tiles >= 1) || !std::isfinite(roads.tiles))
    throw InputError("expected at least one tile");
}

GreedyPlan best_of(int from, int to, int threads, const std::function<GreedyPlan(int)>& plan) {
  if (threads < 0 || threads > kMostThreads)
    throw InputError("threads " + std::to_string(threads) + ": expected 0 (one a core) to " +
                     std::to_string(kMostThreads));
  std::atomic<int> next = from;
  GreedyPlan best;
  bool any = false;
  std::exception_ptr failure;
  std::mutex deciding;
  const auto work = [&] {
    for (int start = next++; start < to; start = next++) try {
        GreedyPlan found = plan(start);
        const std::scoped_lock lock(deciding);
        if (!any || better(found, best)) best = std::move(found);
        any = true;
      } catch (...) {
        const std::scoped_lock lock(deciding);
        failure = std::current_exception();
      }
  };
  const int cores = static_cast<int>(std::max(1U, std::thread::hardware_concurrency()));
  std::vector<std::jthread> others;
  for (int n = std::min(threads > 0 ? threads : cores, to - from); n > 1; --n)
    others.emplace_back(work);
  work();
  others.clear();  // joins
  if (failure) std::rethrow_exception(failure);
  return best;
}

}  // namespace greedy

double estimated_us(const Roads& roads, const std::vector<Send>& sends) {
  std::vector<double> loads(roads.wires, 0.0);
  double makespan = 0;
  for (const Send& send : sends) {
    makespan = std::max(makespan, send.end_us);
    for (const Passage& passage : roads.lanes[send.lane].way) loads[passage.wire] += passage.us;
  }
  const double busiest = loads.empty() ? 0.0 : *std::max_element(loads.begin(), loads.end());
  return makespan + (roads.tiles - 1) * busiest;
}

}  // namespace tuccl
