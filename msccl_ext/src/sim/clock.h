// What calls at the same time have in common: links, adapters and moments.
#pragma once
#include <algorithm>
#include <functional>
#include <vector>

#include "sim/share.h"

namespace tuccl::sim {

struct Clock {
  struct Event {
    double time;
    int owner;
    bool operator>(const Event& o) const {
      return time != o.time ? time > o.time : owner > o.owner;
    }
  };

  explicit Clock(const Links& links) : sharing(links), nic_last(links.capacity.size(), -1) {}

  void reset() {
    sharing.reset();
    events.clear();
    nic_last.assign(nic_last.size(), -1);
  }
  /// When the next flow ends or the next event is due, or infinity.
  double next() const {
    return std::min(events.empty() ? kUnlimited : events.front().time, sharing.next_end());
  }
  bool is_due(double moment) const { return !events.empty() && events.front().time <= moment; }
  void push(double time, int owner) {
    events.push_back({time, owner});
    std::push_heap(events.begin(), events.end(), std::greater<>());
  }
  int pop() {
    const int owner = events.front().owner;
    std::pop_heap(events.begin(), events.end(), std::greater<>());
    events.pop_back();
    return owner;
  }

  Sharing sharing;
  std::vector<Event> events;  ///< Heap.
  std::vector<int> nic_last;  ///< By resource: the owner of the connection that used it last.
};

}  // namespace tuccl::sim
