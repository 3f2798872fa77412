#include "sim/share.h"

#include <algorithm>
#include <functional>
#include <map>

namespace tuccl::sim {
namespace {

/// Demands closer than this count as equal, so that rounding fills no link.
constexpr double kEqual = 1 + 1e-12;

}  // namespace

Sharing::Sharing(const Links& links) {
  links_.resize(links.capacity.size());
  for (std::size_t i = 0; i < links_.size(); ++i) links_[i].capacity = links.capacity[i];
  add_bundles(links);
  add_demands(links);
  join_symmetric();
  add_pairs();
  clock_at_.assign(links_.size() + bundles_.size(), -1);
  follower_at_.assign(bundles_.size(), -1);
}

void Sharing::add_bundles(const Links& links) {
  std::vector<std::vector<int>> crossing(links_.size());
  bundles_.resize(links.bundles.size());
  for (std::size_t i = 0; i < bundles_.size(); ++i) {
    FlowClass& b = bundles_[i];
    b.cap = links.bundles[i].cap;
    const std::vector<int>& ids = links.resources(links.bundles[i]);
    const std::vector<int>* weights = links.bundles[i].weights;
    b.first = static_cast<int>(slots_.size());
    // No flow is faster than its narrowest link.
    for (std::size_t n = 0; n < ids.size(); ++n) {
      const int weight = weights ? (*weights)[n] : 1;
      slots_.push_back({.link = ids[n], .weight = weight});
      crossing[ids[n]].push_back(static_cast<int>(i));
      b.cap = std::min(b.cap, links.capacity[ids[n]] / weight);
    }
    std::ranges::sort(slots_.begin() + b.first, slots_.end(), {}, &Slot::link);
    b.last = static_cast<int>(slots_.size());
  }
  add_spans(crossing);
  drop_dominated(crossing);
}

/// Takes links out of the routes all whose flows another, no wider link
/// carries too: they fill up only when that one does, and bind nobody.
void Sharing::drop_dominated(const std::vector<std::vector<int>>& crossing) {
  std::vector<bool> kept(links_.size(), true), weighted(links_.size());
  for (const Slot& slot : slots_)
    if (slot.weight != 1) weighted[slot.link] = true;
  for (std::size_t l = 0; l < links_.size(); ++l) {
    if (crossing[l].empty() || weighted[l]) continue;
    const FlowClass& b = bundles_[crossing[l][0]];
    for (int s = b.first; s < b.last && kept[l]; ++s) {
      const std::size_t o = static_cast<std::size_t>(slots_[s].link);
      if (o == l || weighted[o] || links_[o].capacity > links_[l].capacity) continue;
      const bool twin = links_[o].capacity == links_[l].capacity && crossing[o] == crossing[l];
      if (twin ? o < l
               : std::includes(crossing[o].begin(), crossing[o].end(), crossing[l].begin(),
                               crossing[l].end()))
        kept[l] = false;
    }
  }
  keep_slots(kept);
}

void Sharing::keep_slots(const std::vector<bool>& links) {
  std::vector<Slot> kept;
  for (FlowClass& b : bundles_) {
    const int first = static_cast<int>(kept.size());
    for (int s = b.first; s < b.last; ++s)
      if (links[slots_[s].link]) kept.push_back(slots_[s]);
    b.first = first;
    b.last = static_cast<int>(kept.size());
  }
  slots_ = std::move(kept);
}

void Sharing::add_spans(const std::vector<std::vector<int>>& crossing) {
  std::map<std::vector<int>, int> known;
  for (const std::vector<int>& bundles : crossing) {
    const auto [at, fresh] = known.try_emplace(bundles, static_cast<int>(spans_.size()));
    if (fresh) spans_.emplace_back();
    link_span_.push_back(at->second);
  }
  for (const FlowClass& b : bundles_) {
    Route route{.first_span = static_cast<int>(bundle_spans_.size())};
    for (int s = b.first; s < b.last; ++s) {
      const int span = link_span_[slots_[s].link];
      if (std::find(bundle_spans_.begin() + route.first_span, bundle_spans_.end(), span) ==
          bundle_spans_.end())
        bundle_spans_.push_back(span);
    }
    route.last_span = static_cast<int>(bundle_spans_.size());
    routes_.push_back(route);
  }
}

/// Says how much the flows on a link may want: no more than their own limits,
/// and all those together that another link narrows no more than that link
/// has. Links that so can never fill up are taken out of the routes.
void Sharing::add_demands(const Links& links) {
  std::map<std::pair<int, int>, int> known;  // (link, narrowest one of its flows)
  std::vector<double> peak;                  // by demand
  for (std::size_t i = 0; i < bundles_.size(); ++i) {
    const FlowClass& b = bundles_[i];
    const auto width = [&](int s) { return links_[slots_[s].link].capacity / slots_[s].weight; };
    int narrowest = b.first;
    for (int s = b.first; s < b.last; ++s)
      if (width(s) < width(narrowest)) narrowest = s;
    for (int s = b.first; s < b.last; ++s) {
      const int link = slots_[s].link, narrow = slots_[narrowest].link;
      const auto [at, fresh] = known.try_emplace({link, narrow}, static_cast<int>(demands_.size()));
      if (fresh) {
        demands_.push_back({.limit = link == narrow ? kUnlimited : 0});
        peak.push_back(0);
      }
      slots_[s].demand = at->second;
      double& limit = demands_[at->second].limit;
      limit = std::max(limit, width(narrowest) * slots_[s].weight);
      peak[at->second] += links.bundles[i].most_flows * b.cap * slots_[s].weight;
    }
  }
  std::vector<double> highest(links_.size(), 0.0);
  for (const auto& [ends, demand] : known)
    highest[ends.first] += std::min(peak[demand], demands_[demand].limit);
  std::vector<bool> able(links_.size());
  for (std::size_t l = 0; l < links_.size(); ++l)
    able[l] = highest[l] > links_[l].capacity * kEqual;
  // Where the narrowest never fills, flows are held back one by one, not all together: those of a
  // link add to one demand.
  std::vector<int> joint(demands_.size()), unlimited(links_.size(), kNobody);
  for (const auto& [ends, demand] : known) {
    joint[demand] = demand;
    if (able[ends.second] && ends.second != ends.first) continue;
    int& own = unlimited[ends.first];
    if (own == kNobody) own = demand;
    joint[demand] = own;
    demands_[own].limit = kUnlimited;
  }
  for (Slot& slot : slots_) slot.demand = joint[slot.demand];
  keep_slots(able);
}

/// Makes one of all bundles with the same limit that can only be held up by
/// the same links, and add to the same demands.
void Sharing::join_symmetric() {
  std::map<std::pair<double, std::vector<int>>, int> known;
  std::vector<FlowClass> joined;
  for (std::size_t i = 0; i < bundles_.size(); ++i) {
    FlowClass& b = bundles_[i];
    std::vector<int> links;  // and demands
    for (int s = b.first; s < b.last; ++s)
      links.insert(links.end(), {slots_[s].link, slots_[s].demand, slots_[s].weight});
    int& at = routes_[i].flow_class;
    at = static_cast<int>(joined.size());
    if (!links.empty()) at = known.try_emplace({b.cap, std::move(links)}, at).first->second;
    if (at == static_cast<int>(joined.size())) joined.push_back(std::move(b));
  }
  bundles_ = std::move(joined);
}

void Sharing::add_pairs() {
  std::vector<std::map<int, int>> shared_links(links_.size());
  for (const FlowClass& b : bundles_)
    for (int s = b.first; s < b.last; ++s)
      for (int o = b.first; o < b.last; ++o)
        if (o != s) shared_links[slots_[s].link][slots_[o].link] = 0;
  for (std::size_t l = 0; l < links_.size(); ++l) {
    links_[l].first = static_cast<int>(shared_links_.size());
    for (auto& [other, index] : shared_links[l]) {
      index = static_cast<int>(shared_links_.size());
      shared_links_.push_back({.link = other});
    }
    links_[l].last = static_cast<int>(shared_links_.size());
  }
  for (FlowClass& b : bundles_) {
    b.pairs = static_cast<int>(pairs_.size());
    for (int s = b.first; s < b.last; ++s)
      for (int o = b.first; o < b.last; ++o)
        if (o != s) pairs_.push_back(shared_links[slots_[s].link][slots_[o].link]);
  }
}

void Sharing::reset() {
  for (FlowClass& b : bundles_) {
    b.served = b.since = 0;
    b.follows = kNobody;
    b.shared_flows = 0;
    b.dirty = b.moves = false;
    b.open = 0;
    b.flows.clear();
  }
  for (Link& l : links_) {
    l.demand = l.load = 0;
    l.flows = l.following = 0;
    l.able = false;
    l.touched = l.group = 0;
    l.followers.clear();
    l.active.clear();
  }
  for (Span& s : spans_) s = {};
  for (Demand& d : demands_) d = {.limit = d.limit};
  for (SharedLink& b : shared_links_) b.flows = 0;
  clocks_.clear();
  std::fill(clock_at_.begin(), clock_at_.end(), -1);
  std::fill(follower_at_.begin(), follower_at_.end(), -1);
  dirty_.clear();
  filled_ = 0;
  epoch_ = 0;
}

double Sharing::served_at(const FlowClass& b, double now) const {
  if (!b.moves) return 0;
  if (b.follows < 0) return b.served + b.cap * (now - b.since);
  const Link& l = links_[b.follows];
  return b.served + l.served + l.level * (now - l.since);
}

void Sharing::mark_dirty(int bundle) {
  if (bundles_[bundle].dirty) return;
  bundles_[bundle].dirty = true;
  dirty_.push_back(bundle);
}

void Sharing::start(double now, int id, double bytes, int owner) {
  const int bundle = routes_[id].flow_class;
  FlowClass& b = bundles_[bundle];
  if (b.flows.empty() && b.follows < 0) {
    b.served = 0;
    b.since = now;
  }
  b.flows.push_back({served_at(b, now) + bytes, owner, id});
  if (b.flows.size() > 1) std::push_heap(b.flows.begin(), b.flows.end(), std::greater<>());
  count_time(now, routes_[id], 1);
  if (count(b, 1) || b.dirty) return mark_dirty(bundle);
  b.moves = true;
  weigh(bundle, b.shared_flows + 1);
  rekey(bundle);
}

int Sharing::end_next(double now) {
  int bundle = clocks_.id() - static_cast<int>(links_.size());
  const int link = bundle < 0 ? clocks_.id() : kNobody;
  if (link >= 0) bundle = links_[link].followers.id();
  FlowClass& b = bundles_[bundle];
  const Flow done = b.flows.front();
  if (b.flows.size() > 1) std::pop_heap(b.flows.begin(), b.flows.end(), std::greater<>());
  b.flows.pop_back();
  if (link >= 0) {
    links_[link].served = done.target - b.served;
    links_[link].since = now;
  } else {
    b.served = done.target;
    b.since = now;
  }
  count_time(now, routes_[done.bundle], -1);
  const bool shared = count(b, -1) || b.dirty;
  rekey(bundle);
  if (shared)
    mark_dirty(bundle);
  else
    weigh(bundle, b.shared_flows - 1);
  return done.owner;
}

void Sharing::count_time(double now, const Route& route, int change) {
  for (int i = route.first_span; i < route.last_span; ++i) {
    Span& span = spans_[bundle_spans_[i]];
    if (span.flows == 0) span.since = now;
    span.flows += change;
    if (span.flows == 0) span.busy += now - span.since;
  }
}

/// Books a flow more or less of `b` on its links. Returns whether one of those
/// may be full, so that rates of others may change.
bool Sharing::count(const FlowClass& b, int change) {
  bool shared = false;
  for (int s = b.first; s < b.last; ++s) {
    Link& l = links_[slots_[s].link];
    Demand& d = demands_[slots_[s].demand];
    const int flows = change * slots_[s].weight;
    l.flows += flows;
    const double before = d.most();
    d.flows += flows;
    d.sum = d.flows == 0 ? 0 : d.sum + flows * b.cap;
    l.demand = l.flows == 0 ? 0 : l.demand + d.most() - before;
    shared |= l.able || l.demand > l.capacity * kEqual;
  }
  return shared;
}

/// Sets the clock that drives `bundle` to when its next flow ends.
void Sharing::rekey(int bundle) {
  FlowClass& b = bundles_[bundle];
  const int clock = static_cast<int>(links_.size()) + bundle;
  if (b.follows >= 0) {
    if (b.flows.empty())
      links_[b.follows].followers.remove(bundle, follower_at_);
    else
      key_follower(bundle);
    rekey_link(b.follows);
  } else if (b.flows.empty()) {
    clocks_.remove(clock, clock_at_);
  } else {
    const double end = b.since + std::max(0.0, b.flows.front().target - b.served) / b.cap;
    clocks_.put(clock, end, clock_at_);
  }
}

void Sharing::key_follower(int bundle) {
  const FlowClass& b = bundles_[bundle];
  links_[b.follows].followers.put(bundle, b.flows.front().target - b.served, follower_at_);
}

void Sharing::rekey_link(int link) {
  const Link& l = links_[link];
  if (l.followers.empty())
    clocks_.remove(link, clock_at_);
  else
    clocks_.put(link, l.since + std::max(0.0, l.followers.key() - l.served) / l.level, clock_at_);
}

/// Lets `link`, or its own limit where that is nobody, drive a bundle that
/// nothing drives.
void Sharing::follow(double now, int bundle, int link) {
  FlowClass& b = bundles_[bundle];
  b.moves = true;
  b.follows = link;
  b.since = now;
  if (link >= 0) {
    Link& l = links_[link];
    if (l.following == 0) {
      l.served = 0;
      l.least_cap = kUnlimited;
    }
    l.least_cap = std::min(l.least_cap, b.cap);
    b.served -= l.served;
    add_followers(b, b.shared_flows);
  }
}

/// Leaves `bundle` with nothing that drives it, and its own account of bytes.
void Sharing::unfollow(double now, int bundle) {
  FlowClass& b = bundles_[bundle];
  b.served = served_at(b, now);
  b.since = now;
  b.moves = false;
  if (b.follows >= 0) {
    links_[b.follows].followers.remove(bundle, follower_at_);
    add_followers(b, -b.shared_flows);
    if (links_[b.follows].followers.empty()) clocks_.remove(b.follows, clock_at_);
    b.follows = kNobody;
  } else {
    clocks_.remove(static_cast<int>(links_.size()) + bundle, clock_at_);
  }
}

/// Books `change` flows of `b` as held up by the link that it follows.
void Sharing::add_followers(const FlowClass& b, int change) {
  if (change == 0) return;
  const int width = b.last - b.first - 1;
  int own = b.first, pair = b.pairs;
  for (; slots_[own].link != b.follows; ++own) pair += width;
  links_[b.follows].following += change * slots_[own].weight;
  for (int s = b.first; s < b.last; ++s)
    if (s != own) shared_links_[pairs_[pair++]].flows += change * slots_[s].weight;
}

/// Books `bundle` as at work with so many flows.
void Sharing::weigh(int bundle, int flows) {
  FlowClass& b = bundles_[bundle];
  if (b.shared_flows == 0) enter(bundle);
  b.shared_flows = flows;
  if (flows == 0) {
    leave(bundle);
    b.moves = false;
  }
}

void Sharing::enter(int bundle) {
  const FlowClass& b = bundles_[bundle];
  for (int s = b.first; s < b.last; ++s) {
    auto& active = links_[slots_[s].link].active;
    slots_[s].place = static_cast<int>(active.size());
    active.emplace_back(bundle, s);
  }
}

void Sharing::leave(int bundle) {
  const FlowClass& b = bundles_[bundle];
  for (int s = b.first; s < b.last; ++s) {
    auto& active = links_[slots_[s].link].active;
    active[slots_[s].place] = active.back();
    slots_[active[slots_[s].place].second].place = slots_[s].place;
    active.pop_back();
    slots_[s].place = kNobody;
  }
}

double Sharing::busy_us(int resource, double now) const {
  const Span& s = spans_[link_span_[resource]];
  return s.busy + (s.flows > 0 ? now - s.since : 0);
}

}  // namespace tuccl::sim
