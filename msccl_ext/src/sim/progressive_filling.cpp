// Progressive filling of what a change reaches.
#include <algorithm>
#include <cmath>

#include "sim/share.h"

namespace tuccl::sim {
namespace {

/// Shares closer than this count as equal, so that rounding makes no levels.
constexpr double kEqual = 1 + 1e-12;

/// A rate that moves by less does not move: rounding shall not spread.
constexpr double kStill = 1e-13;

/// So few followers are sooner filled one by one.
constexpr std::size_t kFew = 4;

}  // namespace

/// Opened items get a new rate, the rest keeps the rate that it has. At the
/// end nobody who is left out would have another one: so the whole is max-min
/// fair.
void Sharing::share_anew(double now) {
  ++epoch_;
  items_.clear();
  crossings_.clear();
  bottlenecks_.clear();
  shares_.clear();
  for (const int b : dirty_) wake_links(bundles_[b]);
  for (const int b : dirty_) change_weight(now, b);
  if (!all_at_caps(now)) {
    open_changed();
    fill();
    apply(now);
    filled_ += static_cast<std::int64_t>(items_.size() + bottlenecks_.size());
  }
  dirty_.clear();
  for (const Bottleneck& t : bottlenecks_) {
    Link& l = links_[t.link];
    if (l.following == 0 && l.demand <= l.capacity * kEqual) l.able = false;
  }
}

/// Keeps account of the links on the path of `b` that may be full from now on.
void Sharing::wake_links(const FlowClass& b) {
  for (int s = b.first; s < b.last; ++s) {
    Link& l = links_[slots_[s].link];
    if (l.able || l.demand <= l.capacity * kEqual) continue;
    l.able = true;
    l.load = 0;
    for (const auto& [other, slot] : l.active)
      l.load += pace(bundles_[other]) * bundles_[other].shared_flows * slots_[slot].weight;
  }
}

/// Books the flows that `bundle` has won or lost.
void Sharing::change_weight(double now, int bundle) {
  FlowClass& b = bundles_[bundle];
  b.dirty = false;
  const int flows = static_cast<int>(b.flows.size());
  const int change = flows - b.shared_flows;
  if (change == 0) {  // one ended as one began
    if (flows > 0) rekey(bundle);
    return;
  }
  const double more = pace(b) * change;
  for (int s = b.first; s < b.last; ++s) {
    Link& l = links_[slots_[s].link];
    if (!l.able) continue;
    l.load += more * slots_[s].weight;
    touch(slots_[s].link);
  }
  if (b.follows >= 0) add_followers(b, change);
  if (flows > 0) {
    weigh(bundle, flows);
    if (b.moves) rekey(bundle);
  } else {
    b.shared_flows = 0;
    unfollow(now, bundle);
    leave(bundle);
  }
}

/// Lets all that changed run at their own limits, if no link on their crossings is
/// full then or holds anybody up.
bool Sharing::all_at_caps(double now) {
  for (Bottleneck& t : bottlenecks_) {
    if (links_[t.link].following > 0) return false;
    t.left = links_[t.link].capacity * kEqual - links_[t.link].load;
  }
  for (const int id : dirty_) {
    const FlowClass& b = bundles_[id];
    if (b.shared_flows == 0 || b.moves) continue;
    for (int s = b.first; s < b.last; ++s)
      if (links_[slots_[s].link].able)
        bottlenecks_[links_[slots_[s].link].bottleneck].left -=
            b.cap * b.shared_flows * slots_[s].weight;
  }
  for (const Bottleneck& t : bottlenecks_)
    if (t.left < 0) return false;
  for (const int id : dirty_) {
    const FlowClass& b = bundles_[id];
    if (b.shared_flows == 0 || b.moves) continue;
    for (int s = b.first; s < b.last; ++s)
      if (links_[slots_[s].link].able)
        links_[slots_[s].link].load += b.cap * b.shared_flows * slots_[s].weight;
    follow(now, id, kNobody);
    rekey(id);
  }
  return true;
}

/// Opens what the changes reach.
void Sharing::open_changed() {
  for (const int id : dirty_) {
    const FlowClass& b = bundles_[id];
    if (b.shared_flows > 0 && b.follows < 0) open_bundle(id);
  }
  const std::size_t changed = bottlenecks_.size();
  for (std::size_t i = 0; i < changed; ++i)
    if (links_[bottlenecks_[i].link].following > 0) open_group(bottlenecks_[i].link);
}

int Sharing::touch(int link) {
  Link& l = links_[link];
  if (l.touched != epoch_) {
    l.touched = epoch_;
    l.bottleneck = static_cast<int>(bottlenecks_.size());
    bottlenecks_.push_back({.link = link});
    shares_.push_back(kUnlimited);
  }
  return l.bottleneck;
}

void Sharing::open_bundle(int bundle) {
  FlowClass& b = bundles_[bundle];
  if (b.open == epoch_) return;
  b.open = epoch_;
  open_item({.cap = b.cap, .before = pace(b), .id = bundle});
  for (int s = b.first; s < b.last; ++s)
    if (links_[slots_[s].link].able)
      add_crossing(slots_[s].link, b.shared_flows * slots_[s].weight);
}

void Sharing::open_item(Item item) {
  again_ = true;
  item.first = item.last = static_cast<int>(crossings_.size());
  ++unfixed_;
  least_cap_ = std::min(least_cap_, item.cap);
  items_.push_back(item);
}

/// Books that the last item has so many flows over `link`.
void Sharing::add_crossing(int link, int flows) {
  const int bottleneck = touch(link);
  crossings_.push_back(
      {bottleneck, flows, static_cast<int>(items_.size()) - 1, bottlenecks_[bottleneck].crossings});
  bottlenecks_[bottleneck].crossings = items_.back().last++;
}

/// Fills the followers of `link` as one, or a few of them one by one.
void Sharing::open_group(int link) {
  Link& l = links_[link];
  if (l.group == epoch_) return;
  l.group = epoch_;
  if (l.followers.size() <= kFew) {
    for (std::size_t i = 0; i < l.followers.size(); ++i) open_bundle(l.followers[i]);
    return;
  }
  open_item({.cap = l.least_cap, .before = l.level, .id = link, .group = true});
  add_crossing(link, l.following);
  for (int i = l.first; i < l.last; ++i)
    if (shared_links_[i].flows > 0 && links_[shared_links_[i].link].able)
      add_crossing(shared_links_[i].link, shared_links_[i].flows);
}

/// From here on the bundles of a group are filled one by one.
void Sharing::split(int group) {
  items_[group].gone = true;
  --unfixed_;
  const SoonestFirst& followers = links_[items_[group].id].followers;
  for (std::size_t i = 0; i < followers.size(); ++i) open_bundle(followers[i]);
}

void Sharing::fill() {
  do {
    prepare();
    while (raise()) {
    }
    again_ = false;
    widen();
  } while (again_);
}

/// Takes back what the opened ones have.
void Sharing::prepare() {
  for (Bottleneck& t : bottlenecks_) {
    t.left = links_[t.link].capacity - links_[t.link].load;
    t.open = 0;
    t.full = false;
  }
  unfixed_ = 0;
  for (Item& item : items_) {
    if (item.gone) continue;
    item.fixed = false;
    ++unfixed_;
    for (int w = item.first; w < item.last; ++w) {
      Bottleneck& t = bottlenecks_[crossings_[w].bottleneck];
      t.left += item.before * crossings_[w].flows;
      t.open += crossings_[w].flows;
    }
  }
  for (std::size_t i = 0; i < bottlenecks_.size(); ++i) {
    Bottleneck& t = bottlenecks_[i];
    t.opened = t.open;
    if (t.opened == links_[t.link].flows) t.left = links_[t.link].capacity;
    shares_[i] = t.open > 0 ? std::max(0.0, t.left / t.open) : kUnlimited;
  }
  find_least_cap();
}

void Sharing::find_least_cap() {
  least_cap_ = kUnlimited;
  for (const Item& item : items_)
    if (!item.gone && !item.fixed) least_cap_ = std::min(least_cap_, item.cap);
}

/// Raises all open rates until some meet their own limit or a full link, and
/// fixes those; false where all are fixed.
bool Sharing::raise() {
  if (unfixed_ == 0) return false;
  double share = kUnlimited;
  for (const double s : shares_) share = std::min(share, s);
  if (least_cap_ <= share * kEqual) find_least_cap();  // who had it may be fixed
  if (least_cap_ <= share * kEqual)
    fix_at_caps(share * kEqual);
  else
    fix_at_full(share);
  return true;
}

void Sharing::fix_at_caps(double level) {
  for (std::size_t i = 0; i < items_.size(); ++i) {
    Item& item = items_[i];
    if (item.gone || item.fixed || item.cap > level) continue;
    if (!item.group) {
      fix(item, item.cap, kNobody);
      continue;
    }
    Link& l = links_[item.id];
    l.least_cap = kUnlimited;  // who set it may have gone
    for (std::size_t f = 0; f < l.followers.size(); ++f)
      l.least_cap = std::min(l.least_cap, bundles_[l.followers[f]].cap);
    item.cap = l.least_cap;
    if (item.cap <= level) split(static_cast<int>(i));
  }
}

void Sharing::fix_at_full(double share) {
  full_.clear();
  for (std::size_t i = 0; i < shares_.size(); ++i)
    if (shares_[i] <= share * kEqual) full_.push_back(static_cast<int>(i));
  for (const int i : full_) {
    bottlenecks_[i].full = true;
    bottlenecks_[i].level = share;
  }
  for (const int i : full_)
    if (bottlenecks_[i].open > 0) fix_over(i, share);
}

/// Fixes who goes over a full link; groups of others that do are split first.
void Sharing::fix_over(int bottleneck, double share) {
  for (int w = bottlenecks_[bottleneck].crossings; w >= 0; w = crossings_[w].next) {
    const int i = crossings_[w].item;
    if (items_[i].gone || items_[i].fixed || !items_[i].group) continue;
    const Bottleneck& own = bottlenecks_[crossings_[items_[i].first].bottleneck];
    if (own.full)
      fix(items_[i], share, own.link);
    else
      split(i);
  }
  for (int w = bottlenecks_[bottleneck].crossings; w >= 0; w = crossings_[w].next)
    if (Item& item = items_[crossings_[w].item]; !item.gone && !item.fixed)
      fix(item, share, bottlenecks_[bottleneck].link);
}

void Sharing::fix(Item& item, double rate, int holder) {
  item.fixed = true;
  --unfixed_;
  item.filling = std::abs(rate - item.before) <= rate * kStill ? item.before : rate;
  item.holder = holder;
  for (int w = item.first; w < item.last; ++w) {
    Bottleneck& t = bottlenecks_[crossings_[w].bottleneck];
    t.left = std::max(0.0, t.left - rate * crossings_[w].flows);
    t.open -= crossings_[w].flows;
    shares_[crossings_[w].bottleneck] = t.open > 0 ? t.left / t.open : kUnlimited;
  }
}

/// Opens those whose rates would follow the new ones: who is held up by a link
/// that others left or took up, and who is faster on a full link.
void Sharing::widen() {
  for (std::size_t i = 0; i < items_.size(); ++i) {
    if (items_[i].gone || items_[i].filling == items_[i].before) continue;
    for (int w = items_[i].first; w < items_[i].last; ++w) {
      const int link = bottlenecks_[crossings_[w].bottleneck].link;
      if (links_[link].following > 0) open_group(link);
    }
  }
  for (std::size_t i = 0; i < bottlenecks_.size(); ++i)
    if (bottlenecks_[i].full && links_[bottlenecks_[i].link].flows > bottlenecks_[i].opened)
      widen_around(bottlenecks_[i]);
}

void Sharing::widen_around(const Bottleneck& bottleneck) {
  const double level = bottleneck.level * kEqual;
  for (const auto& [bundle, slot] : links_[bottleneck.link].active) {
    const FlowClass& b = bundles_[bundle];
    if (b.open == epoch_ || pace(b) <= level) continue;
    if (b.follows < 0)
      open_bundle(bundle);
    else
      open_group(b.follows);
  }
}

/// Makes the new rates hold from `now` on.
void Sharing::apply(double now) {
  apply_loads(now);
  for (const Bottleneck& t : bottlenecks_) {
    Link& l = links_[t.link];
    if (t.opened == l.flows) l.load = l.capacity - t.left;
    if (!t.full) continue;
    l.served += l.level * (now - l.since);
    l.since = now;
    l.level = t.level;
  }
  for (const Item& item : items_) {
    if (item.group) continue;
    if (!bundles_[item.id].moves) follow(now, item.id, item.holder);
    if (item.holder < 0)
      rekey(item.id);
    else
      key_follower(item.id);
  }
  for (const Bottleneck& t : bottlenecks_)
    if (t.full) rekey_link(t.link);
}

/// Books the new rates, and takes bundles off the links that hold them up no more.
void Sharing::apply_loads(double now) {
  for (const Item& item : items_) {
    if (item.gone) continue;
    if (item.filling != item.before)
      for (int w = item.first; w < item.last; ++w)
        links_[bottlenecks_[crossings_[w].bottleneck].link].load +=
            (item.filling - item.before) * crossings_[w].flows;
    if (item.group || !bundles_[item.id].moves || bundles_[item.id].follows == item.holder)
      continue;
    unfollow(now, item.id);
  }
}

}  // namespace tuccl::sim
