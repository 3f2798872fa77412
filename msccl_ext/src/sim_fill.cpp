// Progressive filling of what a change reaches.
#include <algorithm>
#include <cmath>

#include "sim_share.h"

namespace tuccl::sim {
namespace {

/// Shares closer than this count as equal, so that rounding makes no levels.
constexpr double kEqual = 1 + 1e-12;

/// A level that moves by less does not move: rounding shall not spread.
constexpr double kStill = 1e-13;

}  // namespace

/// What is opened gets a new rate; the rest keeps the rate that it has. At the
/// end nobody who is left out would have another rate, so that the whole is
/// max-min fair.
void Sharing::share_anew(double now) {
  ++epoch_;
  opened_.clear();
  groups_.clear();
  touched_.clear();
  for (const int b : dirty_) wake_links(bundles_[b]);
  for (const int b : dirty_) change_weight(now, b);
  dirty_.clear();
  if (touched_.empty()) return;
  fill();
  apply(now);
}

/// Keeps account of the links on the way of `b` that may be full from now on.
void Sharing::wake_links(const Bundled& b) {
  for (int s = b.first; s < b.shared; ++s) {
    Link& l = links_[slots_[s].link];
    if (l.able || l.demand <= l.capacity * kEqual) continue;
    l.able = true;
    l.load = 0;
    for (const auto& [other, slot] : l.active)
      l.load += pace(bundles_[other]) * bundles_[other].settled;
  }
}

bool Sharing::shares(const Bundled& b) const {
  for (int s = b.first; s < b.shared; ++s)
    if (links_[slots_[s].link].able) return true;
  return false;
}

/// Books the flows that `bundle` has won or lost, and opens what they reach.
void Sharing::change_weight(double now, int bundle) {
  Bundled& b = bundles_[bundle];
  b.dirty = false;
  const int flows = static_cast<int>(b.flows.size());
  const int change = flows - b.settled;
  if (change == 0) {  // one ended as one began
    if (flows > 0) rekey(bundle);
    return;
  }
  const double rate = pace(b);
  if (b.follows >= 0) add_followers(b, change);
  if (b.settled == 0) enter(bundle);
  b.settled = flows;
  for (int s = b.first; s < b.shared; ++s) {
    Link& l = links_[slots_[s].link];
    if (!l.able) continue;
    l.load += rate * change;
    touch(slots_[s].link);
    if (l.following > 0) open_group(slots_[s].link);
  }
  if (flows == 0) {
    unfollow(now, bundle);
    leave(bundle);
  } else if (b.follows < 0 && shares(b)) {
    open_bundle(bundle);
  } else {
    if (!b.moves) follow(now, bundle, kNobody);
    rekey(bundle);
  }
}

void Sharing::touch(int link) {
  if (links_[link].touched == epoch_) return;
  links_[link].touched = epoch_;
  touched_.push_back(link);
}

void Sharing::open_bundle(int bundle) {
  Bundled& b = bundles_[bundle];
  if (b.open == epoch_) return;
  b.open = epoch_;
  again_ = true;
  opened_.push_back(bundle);
  open_links(b);
}

void Sharing::open_links(const Bundled& b) {
  for (int s = b.first; s < b.shared; ++s) {
    if (!links_[slots_[s].link].able) continue;
    touch(slots_[s].link);
    if (links_[slots_[s].link].following > 0) open_group(slots_[s].link);
  }
}

void Sharing::open_group(int link) {
  Link& l = links_[link];
  if (l.group == epoch_) return;
  l.group = epoch_;
  l.split = false;
  again_ = true;
  groups_.push_back(link);
  touch(link);
  for (int i = l.first; i < l.last; ++i)
    if (beside_[i].flows > 0 && links_[beside_[i].link].able) touch(beside_[i].link);
}

/// From here on the followers of `link` are filled one by one.
void Sharing::split_group(int link) {
  Link& l = links_[link];
  l.split = true;
  for (std::size_t i = 0; i < l.followers.size(); ++i) {
    Bundled& b = bundles_[l.followers[i]];
    b.open = epoch_;
    b.fixed = false;
    opened_.push_back(l.followers[i]);
    open_links(b);
  }
}

void Sharing::fill() {
  do {
    again_ = false;
    prepare();
    while (raise() && !again_) {
    }
    if (!again_) widen();
  } while (again_);
}

/// Takes back what the opened ones have.
void Sharing::prepare() {
  for (const int id : touched_) {
    Link& l = links_[id];
    l.left = l.capacity - l.load;
    l.open = 0;
    l.full = false;
  }
  for (const int id : opened_) {
    Bundled& b = bundles_[id];
    b.fixed = false;
    for (int s = b.first; s < b.shared; ++s) {
      Link& l = links_[slots_[s].link];
      l.left += pace(b) * b.settled;
      l.open += b.settled;
    }
  }
  for (const int id : groups_) {
    Link& l = links_[id];
    if (l.split) continue;
    l.fixed = false;
    l.left += l.level * l.following;
    l.open += l.following;
    for (int i = l.first; i < l.last; ++i) {
      links_[beside_[i].link].left += l.level * beside_[i].flows;
      links_[beside_[i].link].open += beside_[i].flows;
    }
  }
  for (const int id : touched_) {
    Link& l = links_[id];
    l.opened = l.open;
    if (l.opened == l.flows) l.left = l.capacity;
  }
}

/// Raises all open rates until some meet their own limit or a full link, and
/// fixes those; false where all are fixed.
bool Sharing::raise() {
  double share = kUnlimited;
  for (const int id : touched_)
    if (links_[id].open > 0) share = std::min(share, links_[id].left / links_[id].open);
  double cap = kUnlimited;
  for (const int id : opened_)
    if (!bundles_[id].fixed) cap = std::min(cap, bundles_[id].cap);
  for (const int id : groups_)
    if (!links_[id].split && !links_[id].fixed) cap = std::min(cap, links_[id].least_cap);
  if (cap == kUnlimited) return false;
  share = std::max(share, 0.0);
  if (cap <= share * kEqual)
    fix_at_caps(share * kEqual);
  else
    fix_at_full(share);
  return true;
}

void Sharing::fix_at_caps(double level) {
  for (std::size_t i = 0; i < groups_.size(); ++i) {
    Link& l = links_[groups_[i]];
    if (l.split || l.fixed || l.least_cap > level) continue;
    l.least_cap = kUnlimited;  // who set it may have gone
    for (std::size_t f = 0; f < l.followers.size(); ++f)
      l.least_cap = std::min(l.least_cap, bundles_[l.followers[f]].cap);
    if (l.following == 0)
      l.fixed = true;
    else if (l.least_cap <= level)
      split_group(groups_[i]);
  }
  for (const int id : opened_)
    if (!bundles_[id].fixed && bundles_[id].cap <= level)
      fix_bundle(bundles_[id], bundles_[id].cap, kNobody);
}

void Sharing::fix_at_full(double share) {
  for (const int id : touched_) {
    Link& l = links_[id];
    if (l.open == 0 || l.left / l.open > share * kEqual) continue;
    l.full = true;
    l.share = share;
  }
  for (std::size_t g = 0; g < groups_.size(); ++g) {
    Link& l = links_[groups_[g]];
    if (l.split || l.fixed) continue;
    if (l.full) {
      fix_group(groups_[g]);
      continue;
    }
    for (int i = l.first; i < l.last && !l.split; ++i)
      if (beside_[i].flows > 0 && links_[beside_[i].link].touched == epoch_ &&
          links_[beside_[i].link].full)
        split_group(groups_[g]);
  }
  for (std::size_t i = 0; i < opened_.size(); ++i) {
    Bundled& b = bundles_[opened_[i]];
    for (int s = b.first; s < b.shared && !b.fixed; ++s) {
      const Link& l = links_[slots_[s].link];
      if (l.able && l.touched == epoch_ && l.full) fix_bundle(b, share, slots_[s].link);
    }
  }
}

void Sharing::fix_bundle(Bundled& b, double rate, int holder) {
  b.fixed = true;
  b.filling = rate;
  b.next = holder;
  for (int s = b.first; s < b.shared; ++s) {
    Link& l = links_[slots_[s].link];
    l.left = std::max(0.0, l.left - rate * b.settled);
    l.open -= b.settled;
  }
}

void Sharing::fix_group(int link) {
  Link& l = links_[link];
  l.fixed = true;
  if (std::abs(l.share - l.level) <= l.level * kStill) l.share = l.level;
  l.left = std::max(0.0, l.left - l.share * l.following);
  l.open -= l.following;
  for (int i = l.first; i < l.last; ++i) {
    Link& o = links_[beside_[i].link];
    o.left = std::max(0.0, o.left - l.share * beside_[i].flows);
    o.open -= beside_[i].flows;
  }
}

/// Opens those whose rates would follow the new ones: who is held up by a link
/// that others left or took up, and who is faster on a full link.
void Sharing::widen() {
  for (std::size_t g = 0; g < groups_.size(); ++g) {
    const Link& l = links_[groups_[g]];
    if (l.split || l.share == l.level) continue;
    for (int i = l.first; i < l.last; ++i)
      if (beside_[i].flows > 0 && links_[beside_[i].link].following > 0)
        open_group(beside_[i].link);
  }
  for (std::size_t i = 0; i < touched_.size(); ++i) {
    const Link& l = links_[touched_[i]];
    if (l.full && l.flows > l.opened) widen_around(l);
  }
}

void Sharing::widen_around(const Link& l) {
  for (const auto& [bundle, slot] : l.active) {
    const Bundled& b = bundles_[bundle];
    if (b.open == epoch_ || pace(b) <= l.share * kEqual) continue;
    if (b.follows < 0)
      open_bundle(bundle);
    else
      open_group(b.follows);
  }
}

/// Makes the new rates hold from `now` on.
void Sharing::apply(double now) {
  for (const int id : opened_) {
    Bundled& b = bundles_[id];
    const double more = (b.filling - pace(b)) * b.settled;
    for (int s = b.first; s < b.shared; ++s) links_[slots_[s].link].load += more;
    if (b.moves && b.next != b.follows) unfollow(now, id);
  }
  for (const int id : groups_) {
    Link& l = links_[id];
    if (l.split || l.following == 0) continue;
    l.load += (l.share - l.level) * l.following;
    for (int i = l.first; i < l.last; ++i)
      links_[beside_[i].link].load += (l.share - l.level) * beside_[i].flows;
  }
  for (const int id : touched_) {
    Link& l = links_[id];
    if (!l.full) continue;
    l.served += l.level * (now - l.since);
    l.since = now;
    l.level = l.share;
  }
  for (const int id : opened_) {
    if (!bundles_[id].moves) follow(now, id, bundles_[id].next);
    rekey(id);
  }
  for (const int id : touched_) {
    Link& l = links_[id];
    if (l.opened == l.flows) l.load = l.capacity - l.left;
    rekey_link(id);
    if (l.following == 0 && l.demand <= l.capacity * kEqual) l.able = false;
  }
}

}  // namespace tuccl::sim
