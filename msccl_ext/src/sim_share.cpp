#include "sim_share.h"

#include <algorithm>
#include <functional>

namespace tuccl::sim {
namespace {

/// Shares closer than this count as equal, so that rounding makes no levels.
constexpr double kEqual = 1 + 1e-12;

}  // namespace

Sharing::Sharing(const Plan& plan) {
  for (const double capacity : plan.capacity) {
    Link l;
    l.capacity = capacity;
    links_.push_back(std::move(l));
  }
  for (const Bundle& b : plan.bundles) {
    Group g;
    g.cap = b.cap;
    std::vector<int> ids = plan.network->routes()[b.route].resources;
    std::sort(ids.begin(), ids.end());
    ids.erase(std::unique(ids.begin(), ids.end()), ids.end());
    g.first = static_cast<int>(route_links_.size());
    g.count = static_cast<int>(ids.size());
    route_links_.insert(route_links_.end(), ids.begin(), ids.end());
    // No flow is faster than its narrowest link: so links that cannot fill up
    // are known as such, and bind nobody.
    for (const int id : ids) g.cap = std::min(g.cap, plan.capacity[id]);
    bundles_.push_back(std::move(g));
  }
  place_.assign(route_links_.size(), -1);
}

void Sharing::reset() {
  for (Group& g : bundles_) {
    g.rate = g.served = g.since = 0;
    g.end = kUnlimited;
    g.at = -1;
    g.settled = 0;
    g.dirty = g.open = false;
    g.mark = 0;
    g.flows.clear();
  }
  for (Link& l : links_) {
    l.wanted = l.busy = l.busy_since = 0;
    l.flows = l.open = 0;
    l.saturated = false;
    l.mark = 0;
    l.active.clear();
  }
  heap_.clear();
  dirty_.clear();
  epoch_ = 0;
}

void Sharing::advance(Group& g, double now) {
  g.served += g.rate * (now - g.since);
  g.since = now;
}

void Sharing::mark_dirty(int bundle) {
  if (bundles_[bundle].dirty) return;
  bundles_[bundle].dirty = true;
  dirty_.push_back(bundle);
}

void Sharing::start(double now, int bundle, double bytes, int owner) {
  Group& g = bundles_[bundle];
  if (g.flows.empty()) {
    g.served = 0;
    g.since = now;
    enter(bundle);
  } else {
    advance(g, now);
  }
  g.flows.push_back({g.served + bytes, owner});
  std::push_heap(g.flows.begin(), g.flows.end(), std::greater<>());
  count(now, g, 1);
  mark_dirty(bundle);
}

int Sharing::end_next(double now) {
  const int bundle = heap_[0];
  Group& g = bundles_[bundle];
  const Flow done = g.flows.front();
  std::pop_heap(g.flows.begin(), g.flows.end(), std::greater<>());
  g.flows.pop_back();
  g.served = done.target;
  g.since = now;
  count(now, g, -1);
  mark_dirty(bundle);
  if (g.flows.empty()) {
    heap_remove(bundle);
    leave(bundle);
  } else {
    g.end = now + std::max(0.0, g.flows.front().target - g.served) / g.rate;
    sift_down(0);
  }
  return done.owner;
}

/// Books a flow more or less of `g` on the links of its route.
void Sharing::count(double now, Group& g, int change) {
  for (int i = g.first; i < g.first + g.count; ++i) {
    Link& l = links_[route_links_[i]];
    if (l.flows == 0) l.busy_since = now;
    l.flows += change;
    if (l.flows == 0) {
      l.busy += now - l.busy_since;
      l.wanted = 0;
    } else {
      l.wanted += change * g.cap;
    }
  }
}

void Sharing::enter(int bundle) {
  const Group& g = bundles_[bundle];
  for (int i = g.first; i < g.first + g.count; ++i) {
    auto& active = links_[route_links_[i]].active;
    place_[i] = static_cast<int>(active.size());
    active.emplace_back(bundle, i);
  }
}

void Sharing::leave(int bundle) {
  const Group& g = bundles_[bundle];
  for (int i = g.first; i < g.first + g.count; ++i) {
    auto& active = links_[route_links_[i]].active;
    active[place_[i]] = active.back();
    place_[active[place_[i]].second] = place_[i];
    active.pop_back();
    place_[i] = -1;
  }
}

void Sharing::settle(double now) {
  if (dirty_.empty()) return;
  ++epoch_;
  touched_bundles_.clear();
  touched_links_.clear();
  for (const int b : dirty_) {
    Group& g = bundles_[b];
    g.dirty = false;
    const int flows = static_cast<int>(g.flows.size());
    if (flows != g.settled)
      collect(b);
    else if (flows > 0)
      apply(now, b);  // one ended as one began: only the order of ends changed
    g.settled = flows;
  }
  dirty_.clear();
  if (touched_bundles_.empty()) return;
  fill();
  for (const int b : touched_bundles_)
    if (!bundles_[b].flows.empty()) apply(now, b);
}

/// Adds to the touched set what a change of `bundle` can reach: through links
/// that were or may become saturated, since the others bind nobody.
void Sharing::collect(int bundle) {
  if (bundles_[bundle].mark == epoch_) return;
  bundles_[bundle].mark = epoch_;
  const std::size_t first = touched_bundles_.size();
  touched_bundles_.push_back(bundle);
  for (std::size_t i = first; i < touched_bundles_.size(); ++i) {
    const Group& g = bundles_[touched_bundles_[i]];
    for (int j = g.first; j < g.first + g.count; ++j) {
      Link& l = links_[route_links_[j]];
      if (l.mark == epoch_) continue;
      const bool can = l.wanted > l.capacity * kEqual;
      if (!can && !l.saturated) continue;
      l.mark = epoch_;
      l.saturated = can;
      l.left = l.capacity;
      l.open = l.flows;
      if (can) touched_links_.push_back(route_links_[j]);
      for (const auto& [other, index] : l.active) {
        if (bundles_[other].mark == epoch_) continue;
        bundles_[other].mark = epoch_;
        touched_bundles_.push_back(other);
      }
    }
  }
}

/// Progressive filling of the touched set: raise all rates together, and fix
/// those that meet their own limit or a full link.
void Sharing::fill() {
  std::size_t open = 0;
  double least_cap = kUnlimited;
  for (const int b : touched_bundles_) {
    Group& g = bundles_[b];
    g.open = !g.flows.empty();
    if (!g.open) continue;
    ++open;
    least_cap = std::min(least_cap, g.cap);
  }
  while (open > 0) {
    double share = kUnlimited;
    for (const int id : touched_links_) {
      const Link& l = links_[id];
      if (l.open > 0) share = std::min(share, l.left / l.open);
    }
    const double level = std::max(share, 0.0) * kEqual;
    if (least_cap <= level) {
      double next_cap = kUnlimited;
      for (const int b : touched_bundles_) {
        Group& g = bundles_[b];
        if (!g.open) continue;
        if (g.cap <= level)
          fix(g, g.cap), --open;
        else
          next_cap = std::min(next_cap, g.cap);
      }
      least_cap = next_cap;
      continue;
    }
    for (const int id : touched_links_) {
      Link& l = links_[id];
      if (l.open == 0 || l.left / l.open > level) continue;
      for (const auto& [b, index] : l.active)
        if (bundles_[b].open) fix(bundles_[b], share), --open;
    }
  }
}

void Sharing::fix(Group& g, double rate) {
  g.open = false;
  g.filling = rate;
  const int flows = static_cast<int>(g.flows.size());
  for (int i = g.first; i < g.first + g.count; ++i) {
    Link& l = links_[route_links_[i]];
    if (l.mark != epoch_) continue;
    l.left = std::max(0.0, l.left - rate * flows);
    l.open -= flows;
  }
}

/// Gives `bundle` its rate from `now` on, and its next end.
void Sharing::apply(double now, int bundle) {
  Group& g = bundles_[bundle];
  if (g.mark == epoch_ && g.filling != g.rate) {
    advance(g, now);
    g.rate = g.filling;
  }
  const double end = g.since + std::max(0.0, g.flows.front().target - g.served) / g.rate;
  if (g.at >= 0 && end == g.end) return;
  g.end = end;
  rekey(bundle);
}

double Sharing::busy_us(int resource, double now) const {
  const Link& l = links_[resource];
  return l.busy + (l.flows > 0 ? now - l.busy_since : 0);
}

bool Sharing::sooner(int a, int b) const {
  const double x = bundles_[a].end;
  const double y = bundles_[b].end;
  return x != y ? x < y : a < b;
}

void Sharing::rekey(int bundle) {
  Group& g = bundles_[bundle];
  if (g.at < 0) {
    g.at = static_cast<int>(heap_.size());
    heap_.push_back(bundle);
  }
  sift_up(static_cast<std::size_t>(g.at));
  sift_down(static_cast<std::size_t>(g.at));
}

void Sharing::heap_remove(int bundle) {
  const std::size_t i = static_cast<std::size_t>(bundles_[bundle].at);
  bundles_[bundle].at = -1;
  bundles_[bundle].end = kUnlimited;
  const int last = heap_.back();
  heap_.pop_back();
  if (last == bundle) return;
  heap_[i] = last;
  bundles_[last].at = static_cast<int>(i);
  rekey(last);
}

void Sharing::sift_up(std::size_t i) {
  const int bundle = heap_[i];
  while (i > 0 && sooner(bundle, heap_[(i - 1) / 2])) {
    heap_[i] = heap_[(i - 1) / 2];
    bundles_[heap_[i]].at = static_cast<int>(i);
    i = (i - 1) / 2;
  }
  heap_[i] = bundle;
  bundles_[bundle].at = static_cast<int>(i);
}

void Sharing::sift_down(std::size_t i) {
  const int bundle = heap_[i];
  for (std::size_t child = 2 * i + 1; child < heap_.size(); child = 2 * i + 1) {
    if (child + 1 < heap_.size() && sooner(heap_[child + 1], heap_[child])) ++child;
    if (!sooner(heap_[child], bundle)) break;
    heap_[i] = heap_[child];
    bundles_[heap_[i]].at = static_cast<int>(i);
    i = child;
  }
  heap_[i] = bundle;
  bundles_[bundle].at = static_cast<int>(i);
}

}  // namespace tuccl::sim
