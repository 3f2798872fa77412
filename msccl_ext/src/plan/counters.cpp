#include "plan/counters.h"

#include <string>

namespace tuccl::plan {
Counters::Counters(const Kernels& plan, int first_proxy, Order& order, RaceDetector& races,
                   Findings& findings)
    : first_proxy_(first_proxy),
      order_(order),
      races_(races),
      out_(findings),
      queued_(at(plan.proxies)) {
  for (const int value : plan.counters) counters_.push_back({value, value, {}, {}, {}});
}

Event Counters::event(int block, const Location& place, int lane) {
  const auto serial = races_.begin(place);
  return {block, order_.segment(block), serial, static_cast<std::uint32_t>(lane)};
}

void Counters::use(std::optional<Event>& last, int block, const Location& place, const char* what) {
  if (last && last->thread != block && !order_.ordered(*last, block, false) &&
      !out_.counted("race"))
    out_.error("race", place,
               std::string(what) + " a counter that " + describe(races_.place_of(last->serial)) +
                   " uses alike, and nothing orders the two");
  last = event(block, place, 0);
}

void Counters::post(int block, const Location& place, const DeviceOperation& op, std::size_t lane) {
  const CounterRef& ref = op.counters[lane];
  Counter& counter = counters_[at(ref.counter)];
  use(counter.posted, block, place, "raises");
  if (ref.proxy >= 0) queue(block, place, ref.proxy, static_cast<int>(lane), false);
  const int from = ref.proxy >= 0 ? thread(ref.proxy) : block;
  counter.posts.push_back({order_.snapshot(from), op.relaxed});
}

bool Counters::take(int block, const Location& place, const DeviceOperation& op, std::size_t lane) {
  Counter& counter = counters_[at(op.counters[lane].counter)];
  if (counter.left <= 0 && counter.posts.empty()) return false;
  use(counter.taken, block, place, "lowers");
  if (counter.left > 0) {
    --counter.left;
    return true;
  }
  const Post& post = counter.posts.front();
  order_.learn(block, post.from, post.relaxed || op.relaxed);
  counter.posts.pop_front();
  return true;
}

void Counters::queue(int block, const Location& place, int proxy, int lane, bool moves) {
  auto& last = queued_[at(proxy)];
  const Event now = event(block, place, lane);
  if (last && (last->moves || moves)) {
    const Event& before = last->event;
    // One thread of a block hands things over in its order; others' need a nop or more between.
    const bool same = before.thread == block && before.element == now.element;
    if (!same && !order_.ordered(before, block, false) && !out_.counted("race"))
      out_.error("race", place,
                 "uses a port channel after " + describe(races_.place_of(before.serial)) +
                     " and nothing orders the two: a nop is missing");
  }
  last = Queued{now, moves};
  order_.follow(thread(proxy), *order_.snapshot(block));
}

void Counters::flush(int block, const Location& place, int proxy, int lane) {
  queue(block, place, proxy, lane, false);
  order_.learn(block, order_.snapshot(thread(proxy)), false);
}

void Counters::report_left() const {
  for (const Counter& counter : counters_) {
    const int left = counter.left + static_cast<int>(counter.posts.size());
    if (left == counter.initial || out_.counted("unmatched")) continue;
    const Event& last = counter.posted ? *counter.posted : *counter.taken;
    out_.error("unmatched", races_.place_of(last.serial),
               "raises a counter that calls leave at " + std::to_string(left) + " instead of " +
                   std::to_string(counter.initial) + ": a wait or acquire is missing");
  }
}

}  // namespace tuccl::plan
