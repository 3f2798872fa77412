// Items with one destination each: ways around each other, then times.
#include <algorithm>
#include <functional>
#include <limits>
#include <queue>
#include <string>

#include "greedy_starts.h"
#include "tuccl/error.h"
#include "tuccl/greedy.h"

namespace tuccl {
namespace greedy {
namespace {

constexpr double kNoWay = std::numeric_limits<double>::infinity();
/// Ways off the busiest wire that may fail to relieve it before routing ends.
constexpr int kTries = 32;

void check_delivery(const Roads& roads, const std::vector<Freight>& freights,
                    const std::vector<std::vector<int>>& carried) {
  check(roads);
  if (roads.blocks != 1) throw InputError("deliveries are planned for one block alone");
  const int ranks = static_cast<int>(roads.hosts.size());
  const auto ranked = [&](int rank) { return rank >= 0 && rank < ranks; };
  for (const Freight& freight : freights)
    if (!ranked(freight.origin) || !ranked(freight.target) || !ranked(freight.place))
      throw InputError("expected freights between ranks");
  if (!carried.empty() && static_cast<int>(carried.size()) != ranks)
    throw InputError("expected what may be carried by rank");
}

/// Cheapest ways under costs that grow with what a wire has to carry already.
class Routing {
 public:
  Routing(const Roads& roads, const std::vector<Freight>& freights,
          const std::vector<std::vector<int>>& carried)
      : roads_(roads),
        freights_(freights),
        ruled_(!carried.empty()),
        out_(roads.hosts.size()),
        loads_(roads.wires, 0.0),
        cost_(roads.hosts.size()),
        by_(roads.hosts.size()) {
    for (std::size_t n = 0; n < roads.lanes.size(); ++n) {
      out_[roads.lanes[n].tail].push_back(static_cast<int>(n));
      travel_.push_back(travel_us(roads.lanes[n]));
    }
    allowed_.resize(carried.size(), std::vector<char>(roads.hosts.size(), 0));
    for (std::size_t rank = 0; rank < carried.size(); ++rank)
      for (const int place : carried[rank]) allowed_[rank].at(place) = 1;
  }

  /// Lanes of each freight's way; on failure the freight's number is left in `stranded`.
  std::vector<std::vector<int>> run(Dice& dice, int& stranded) {
    std::vector<int> order(freights_.size());
    for (std::size_t n = 0; n < order.size(); ++n) order[n] = static_cast<int>(n);
    for (std::size_t n = order.size(); n > 1; --n)
      std::swap(order[n - 1], order[dice.below(static_cast<std::uint32_t>(n))]);
    std::vector<std::vector<int>> ways(freights_.size());
    for (const int number : order) {
      if (!find(freights_[number], kNoWay, ways[number])) {
        stranded = number;
        return {};
      }
      load(ways[number], 1.0);
    }
    relieve(ways, order);
    return ways;
  }

 private:
  void load(const std::vector<int>& way, double sign) {
    for (const int lane : way)
      for (const Passage& passage : roads_.lanes[lane].way)
        loads_[passage.wire] += sign * passage.us;
  }

  /// Lays ways anew that use the busiest wire, while that relieves it.
  void relieve(std::vector<std::vector<int>>& ways, const std::vector<int>& order) {
    int tries = kTries;
    bool moved = true;
    while (moved && tries > 0) {
      moved = false;
      const double worst = *std::max_element(loads_.begin(), loads_.end());
      for (const int number : order) {
        if (loaded(ways[number]) < worst) continue;
        std::vector<int> other;
        load(ways[number], -1.0);
        // A move that only shifts the crowd is none.
        moved = find(freights_[number], worst * (1 - 1e-9), other);
        if (moved) ways[number].swap(other);
        load(ways[number], 1.0);
        if (moved || --tries == 0) break;
      }
    }
  }

  double loaded(const std::vector<int>& way) const {
    double most = 0;
    for (const int lane : way) most = std::max(most, busy(lane));
    return most;
  }

  double busy(int lane) const {
    double most = 0;
    for (const Passage& passage : roads_.lanes[lane].way)
      most = std::max(most, loads_[passage.wire]);
    return most;
  }

  bool allows(int lane, const Freight& freight) const {
    const Lane& link = roads_.lanes[lane];
    return !link.inter || !ruled_ || allowed_[link.tail][freight.place];
  }

  bool fits(int lane, double limit) const {
    for (const Passage& passage : roads_.lanes[lane].way)
      if (loads_[passage.wire] + passage.us >= limit) return false;
    return true;
  }

  /// Finds the quickest way behind the loads so far that loads nothing up to `limit` us.
  bool find(const Freight& freight, double limit, std::vector<int>& way) {
    std::fill(cost_.begin(), cost_.end(), kNoWay);
    using Entry = std::pair<double, int>;
    std::priority_queue<Entry, std::vector<Entry>, std::greater<>> waiting;
    waiting.emplace(cost_[freight.origin] = 0, freight.origin);
    while (!waiting.empty()) {
      const auto [spent, rank] = waiting.top();
      waiting.pop();
      if (rank == freight.target) break;
      if (spent > cost_[rank]) continue;
      for (const int number : out_[rank]) {
        const double total = spent + travel_[number] + busy(number);
        const int head = roads_.lanes[number].head;
        if (!(total < cost_[head]) || !allows(number, freight) || !fits(number, limit)) continue;
        cost_[head] = total;
        by_[head] = number;
        waiting.emplace(total, head);
      }
    }
    if (cost_[freight.target] == kNoWay) return false;
    for (int rank = freight.target; rank != freight.origin; rank = roads_.lanes[by_[rank]].tail)
      way.push_back(by_[rank]);
    std::reverse(way.begin(), way.end());
    return true;
  }

  const Roads& roads_;
  const std::vector<Freight>& freights_;
  bool ruled_;
  std::vector<std::vector<int>> out_;
  std::vector<double> travel_;
  std::vector<std::vector<char>> allowed_;
  std::vector<double> loads_;  ///< By wire, in us.
  std::vector<double> cost_;
  std::vector<int> by_;
};

/// The sends along the ways; those with most of their way before them go first.
std::vector<Send> timed(const Roads& roads, const std::vector<std::vector<int>>& ways, Dice& dice) {
  std::vector<Leg> legs;
  std::vector<int> item_of;
  for (std::size_t item = 0; item < ways.size(); ++item) {
    double left = 0;
    for (const int lane : ways[item]) left += travel_us(roads.lanes[lane]);
    for (std::size_t turn = 0; turn < ways[item].size(); ++turn) {
      std::vector<int> after;
      if (turn > 0) after.push_back(static_cast<int>(legs.size()) - 1);
      legs.push_back({ways[item][turn], std::move(after), left + 1e-6 * dice.below(1000)});
      item_of.push_back(static_cast<int>(item));
      left -= travel_us(roads.lanes[ways[item][turn]]);
    }
  }
  std::vector<Send> sends = timetable(roads, legs);
  for (Send& send : sends) send.item = item_of[send.item];
  return sends;
}

}  // namespace
}  // namespace greedy

GreedyPlan deliver_items(const Roads& roads, const std::vector<Freight>& freights,
                         const std::vector<std::vector<int>>& carried, const Search& search) {
  using namespace greedy;
  check_delivery(roads, freights, carried);
  return best_of(0, std::max(1, search.starts), search.threads, [&](int start) {
    Dice dice(search.seed * 1000003 + start);
    GreedyPlan plan;
    const auto ways = Routing(roads, freights, carried).run(dice, plan.item);
    if (plan.item >= 0) {
      plan.rank = freights[plan.item].target;
      return plan;
    }
    plan.start = start;
    plan.sends = timed(roads, ways, dice);
    plan.time_us = estimated_us(roads, plan.sends);
    return plan;
  });
}

}  // namespace tuccl
