#include "plan/order.h"

#include <algorithm>
#include <set>

namespace tuccl::plan {

void join(Clock& into, const Clock& from) {
  for (std::size_t i = 0; i < into.size(); ++i) into[i] = std::max(into[i], from[i]);
}

Order::Order(int threads) : threads_(index(threads)) {
  for (int t = 0; t < threads; ++t) {
    at(t).now.data.assign(index(threads), 0);
    at(t).now.all.assign(index(threads), 0);
  }
}

void Order::learn(int thread, const Snapshot& from, bool relaxed) {
  auto& acquires = at(thread).acquires;
  if (acquires.empty() || acquires.back().from != from || acquires.back().relaxed != relaxed)
    acquires.push_back({from, relaxed});
}

void Order::learn(int thread, const Packet& packet) { at(thread).packets.push_back(packet); }

void Order::follow(int thread, const Knowledge& from) {
  join(at(thread).now.data, from.data);
  join(at(thread).now.all, from.all);
}

void Order::advance(int thread) {
  Thread& self = at(thread);
  for (const Acquire& acquire : self.acquires) {
    if (!acquire.relaxed) join(self.now.data, acquire.from->data);
    join(self.now.all, acquire.from->all);
  }
  self.acquires.clear();
  const Clock* last = nullptr;
  for (const Packet& packet : self.packets) {
    if (packet.clock.get() != last) join(self.now.all, *packet.clock);
    last = packet.clock.get();
  }
  self.earlier.insert(self.earlier.end(), self.packets.begin(), self.packets.end());
  self.packets.clear();
  ++self.now.data[index(thread)];
  ++self.now.all[index(thread)];
}

void Order::settle(int thread) {
  at(thread).settled.push_back(segment(thread));
  at(thread).earlier.clear();
}

bool Order::proves(const Event& before, int thread) const {
  const auto& packets = at(thread).earlier;
  return std::any_of(packets.begin(), packets.end(),
                     [&](const Packet& p) { return p.proves(before); });
}

ClockSums::Shared ClockSums::sum(const Shared& a, const Shared& b) {
  if (!a || a == b) return b;
  if (!b) return a;
  Shared& entry = sums_[{a, b}];
  if (!entry) {
    auto both = std::make_shared<Clock>(*a);
    join(*both, *b);
    entry = std::move(both);
  }
  return entry;
}

bool Packet::proves(const Event& event) const {
  if (clock && (*clock)[static_cast<std::size_t>(event.thread)] > event.segment) return true;
  std::vector<const PacketHistory*> open;
  std::set<const PacketHistory*> met;
  if (history) open.push_back(history.get());
  while (!open.empty()) {
    const PacketHistory* here = open.back();
    open.pop_back();
    if (!met.insert(here).second) continue;
    if (here->event.serial == event.serial && here->event.element == event.element) return true;
    for (const auto& before : here->before) open.push_back(before.get());
  }
  return false;
}

bool Order::ordered(const Event& before, int thread, bool data) const {
  const Knowledge& now = at(thread).now;
  const std::size_t by = index(before.thread);
  if (now.all[by] <= before.segment) return false;
  if (!data || now.data[by] > before.segment) return true;
  for (const std::uint32_t begin : at(before.thread).settled)
    if (begin > before.segment) return now.all[by] >= begin;
  return false;
}

}  // namespace tuccl::plan
