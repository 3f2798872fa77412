#include "sim/meter.h"

#include <algorithm>

namespace tuccl::sim {
namespace {

/// A link with less than this share of its rate left is full.
constexpr double kFull = 1 - 1e-9;

}  // namespace

Meter::Meter(const TransferGraph& graph, double end_us, int bins)
    : from_(graph.blocks.size() + graph.connections.size()),
      held_(graph.links.capacity.size(), 0.0),
      bin_us_(end_us / bins) {
  for (const double capacity : graph.links.capacity) {
    Link l;
    l.capacity = capacity;
    l.bins.assign(static_cast<std::size_t>(bins), 0.0);
    links_.push_back(std::move(l));
  }
  for (const Bundle& b : graph.links.bundles) {
    Group g;
    g.cap = b.cap;
    g.links = graph.links.network->routes()[b.route].resources;
    groups_.push_back(std::move(g));
  }
}

void Meter::advance(Group& g, double now) {
  g.served += g.rate * (now - g.since);
  g.since = now;
}

void Meter::touch(Group& g) {
  for (const int id : g.links) {
    if (links_[id].dirty) continue;
    links_[id].dirty = true;
    dirty_.push_back(id);
  }
}

void Meter::list(int bundle) {
  if (groups_[bundle].listed) return;
  groups_[bundle].listed = true;
  active_.push_back(bundle);
  for (const int id : groups_[bundle].links) links_[id].bundles.push_back(bundle);
}

void Meter::start(double now, int bundle, int owner) {
  Group& g = groups_[bundle];
  advance(g, now);
  from_[owner] = {now, g.served};
  g.owners.push_back(owner);
  list(bundle);
  touch(g);
}

Meter::Stretch Meter::end(double now, int bundle, int owner) {
  Group& g = groups_[bundle];
  advance(g, now);
  g.owners.erase(std::find(g.owners.begin(), g.owners.end(), owner));
  touch(g);
  return cut(g, owner, now);
}

/// Ends the stretch of `owner` and begins its next one.
Meter::Stretch Meter::cut(const Group& g, int owner, double now) {
  Mark& from = from_[owner];
  for (const int link : g.full) held_[link] += now - from.time;
  const Stretch s{owner, g.served - from.served, g.full.empty() ? -1 : g.full.front()};
  from = {now, g.served};
  return s;
}

const std::vector<Meter::Stretch>& Meter::update_rates(double now, const Sharing& sharing) {
  stretches_.clear();
  follow_rates(now, sharing);
  if (!dirty_.empty()) {
    update_links(now);
    update_bottlenecks(now);
    dirty_.clear();
  }
  return stretches_;
}

void Meter::follow_rates(double now, const Sharing& sharing) {
  std::size_t kept = 0;
  for (const int b : active_) {
    Group& g = groups_[b];
    const double rate = g.owners.empty() ? 0 : sharing.rate(b);
    if (rate != g.rate) {
      advance(g, now);
      g.rate = rate;
      touch(g);
    }
    if (!g.owners.empty()) {
      active_[kept++] = b;
      continue;
    }
    g.listed = false;
    for (const int id : g.links) std::erase(links_[id].bundles, b);
  }
  active_.resize(kept);
}

void Meter::update_links(double now) {
  reached_.clear();
  for (const int id : dirty_) {
    Link& l = links_[id];
    account(l, now);
    l.dirty = false;
    const double before = l.load;
    l.load = l.fastest = 0;
    for (const int b : l.bundles) {
      Group& g = groups_[b];
      l.load += g.rate * static_cast<double>(g.owners.size());
      l.fastest = std::max(l.fastest, g.rate);
      if (g.reached) continue;
      g.reached = true;
      reached_.push_back(b);
    }
    if (keeping_ && l.load != before) sample(id, now);
  }
}

void Meter::update_bottlenecks(double now) {
  for (const int b : reached_) {
    Group& g = groups_[b];
    g.reached = false;
    std::vector<int> full = bottlenecks(g);
    if (full == g.full) continue;
    advance(g, now);
    for (const int owner : g.owners) stretches_.push_back(cut(g, owner, now));
    g.full = std::move(full);
  }
}

/// Max-min fair: a flow below its own limit crosses a full link on which
/// nobody is faster.
std::vector<int> Meter::bottlenecks(const Group& g) const {
  std::vector<int> full;
  if (g.rate >= g.cap * kFull) return full;
  for (const int id : g.links) {
    const Link& l = links_[id];
    if (l.load >= l.capacity * kFull && g.rate >= l.fastest * kFull) full.push_back(id);
  }
  return full;
}

void Meter::account(Link& l, double now) {
  l.used += l.load * (now - l.since);
  const int last = static_cast<int>(l.bins.size()) - 1;
  while (l.load > 0 && l.since < now) {
    int bin = std::min(static_cast<int>(l.since / bin_us_), last);
    if ((bin + 1) * bin_us_ <= l.since) bin = std::min(bin + 1, last);  // an edge, rounded
    const double until = bin == last ? now : std::min(now, (bin + 1) * bin_us_);
    l.bins[bin] += l.load * (until - l.since);
    l.since = until;
  }
  l.since = now;
}

void Meter::sample(int link, double now) {
  const Link& l = links_[link];
  samples_.push_back({link, now, std::min(1.0, l.load / l.capacity)});
}

void Meter::keep(bool samples, double now) {
  if (samples == keeping_) return;
  keeping_ = samples;
  for (std::size_t i = 0; i < links_.size(); ++i) {
    Link& l = links_[i];
    account(l, now);
    if (samples && now > gap_from_) {
      const double mean = (l.used - l.used_before) / (l.capacity * (now - gap_from_));
      samples_.push_back({static_cast<int>(i), gap_from_, std::min(1.0, mean)});
      sample(static_cast<int>(i), now);
    }
    l.used_before = l.used;
  }
  gap_from_ = now;
}

void Meter::finish(double now) {
  keep(true, now);
  for (Link& l : links_) account(l, now);
}

std::vector<std::vector<double>> Meter::use() const {
  std::vector<std::vector<double>> out;
  for (const Link& l : links_) {
    out.push_back(l.bins);
    for (double& bytes : out.back())
      bytes = bin_us_ > 0 ? std::min(1.0, bytes / (l.capacity * bin_us_)) : 0;
  }
  return out;
}

}  // namespace tuccl::sim
