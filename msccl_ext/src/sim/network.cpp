#include "tuccl/network.h"

#include <algorithm>
#include <cmath>
#include <numeric>
#include <utility>

#include "tuccl/error.h"

namespace tuccl {
namespace {

constexpr int kMostRanks = 1 << 14;

constexpr int kNone = -1;

std::string pair_name(const Route& r) {
  return "route " + std::to_string(r.src) + " > " + std::to_string(r.dst);
}

/// By resource the one `period` ranks further on, kNone for those that no route crosses.
std::optional<std::vector<int>> further_links(const Network& network, int period) {
  const int ranks = network.ranks();
  std::vector<int> next(network.resources().size(), kNone), before = next;
  const auto follows = [&](int from, int to) {
    const Resource& one = network.resources()[from];
    const Resource& other = network.resources()[to];
    if (next[from] == kNone && before[to] == kNone) {
      next[from] = to;
      before[to] = from;
    }
    return next[from] == to && one.kind == other.kind && one.bandwidth_gbs == other.bandwidth_gbs;
  };
  for (int r = 0; r < static_cast<int>(network.routes().size()); ++r) {
    const Route& route = network.routes()[r];
    int channel = 0;
    while (network.find(route.src, route.dst, channel) != r) ++channel;
    const int further =
        network.find((route.src + period) % ranks, (route.dst + period) % ranks, channel);
    if (further < 0) return std::nullopt;
    const Route& other = network.routes()[further];
    if (other.latency_us != route.latency_us || other.transport != route.transport ||
        !std::equal(route.resources.begin(), route.resources.end(), other.resources.begin(),
                    other.resources.end(), follows))
      return std::nullopt;
  }
  return next;
}

/// Whether no route crosses two links that are alike, and all that cross a link of a network leave
/// one rank or reach one. Else it matters who is served first.
bool ranks_have_links_of_their_own(const Network& network, const std::vector<int>& first) {
  std::vector<std::pair<int, int>> ends(first.size(), {kNone, kNone});  // -2: several
  for (const Route& route : network.routes()) {
    std::vector<int> crossed;
    for (const int id : route.resources) {
      crossed.push_back(first[id]);
      auto& [src, dst] = ends[id];
      src = src == kNone || src == route.src ? route.src : -2;
      dst = dst == kNone || dst == route.dst ? route.dst : -2;
      if (src == -2 && dst == -2 && network.resources()[id].kind == "network") return false;
    }
    std::sort(crossed.begin(), crossed.end());
    if (std::adjacent_find(crossed.begin(), crossed.end()) != crossed.end()) return false;
  }
  return true;
}

std::optional<std::vector<int>> find_repeated_links(const Network& network, int period) {
  const auto next = further_links(network, period);
  if (!next) return std::nullopt;
  std::vector<int> first(next->size(), kNone);
  for (int start = 0; start < static_cast<int>(first.size()); ++start) {
    if (first[start] != kNone) continue;
    int length = 0;
    for (int at = start; at != kNone && first[at] == kNone; at = (*next)[at], ++length)
      first[at] = start;
    if ((*next)[start] != kNone && length != network.ranks() / period) return std::nullopt;
  }
  if (!ranks_have_links_of_their_own(network, first)) return std::nullopt;
  return first;
}

}  // namespace

Network::Network(int ranks, std::vector<Resource> resources, std::vector<Route> routes)
    : ranks_(ranks), resources_(std::move(resources)), routes_(std::move(routes)) {
  if (ranks < 1 || ranks > kMostRanks)
    throw InputError("network of " + std::to_string(ranks) + " ranks: expected 1 to " +
                     std::to_string(kMostRanks));
  check_resources();
  for (std::size_t i = 0; i < routes_.size(); ++i) check_route(i);
  by_ends_.resize(routes_.size());
  std::iota(by_ends_.begin(), by_ends_.end(), 0);
  std::stable_sort(by_ends_.begin(), by_ends_.end(), [this](int a, int b) {
    return std::pair(routes_[a].src, routes_[a].dst) < std::pair(routes_[b].src, routes_[b].dst);
  });
  first_of_.assign(static_cast<std::size_t>(ranks) + 1, 0);
  for (const Route& r : routes_) ++first_of_[r.src + 1];
  std::partial_sum(first_of_.begin(), first_of_.end(), first_of_.begin());
}

void Network::check_resources() const {
  for (const Resource& r : resources_)
    if (!(r.bandwidth_gbs > 0) || !std::isfinite(r.bandwidth_gbs))
      throw InputError("resource '" + r.name.substr(0, 60) + "': bandwidth_gbs is " +
                       std::to_string(r.bandwidth_gbs) + ", expected a positive number");
}

void Network::check_route(std::size_t index) const {
  const Route& r = routes_[index];
  if (r.src < 0 || r.src >= ranks_ || r.dst < 0 || r.dst >= ranks_ || r.src == r.dst)
    throw InputError(pair_name(r) + ": expected two distinct ranks below " +
                     std::to_string(ranks_));
  if (!(r.latency_us >= 0) || !std::isfinite(r.latency_us))
    throw InputError(pair_name(r) + ": latency_us is " + std::to_string(r.latency_us) +
                     ", expected 0 or more");
  std::vector<int> ids = r.resources;
  std::sort(ids.begin(), ids.end());
  if (const auto twice = std::adjacent_find(ids.begin(), ids.end()); twice != ids.end())
    throw InputError(pair_name(r) + ": names resource " + std::to_string(*twice) +
                     " twice, expected each once");
  for (const int id : r.resources)
    if (id < 0 || id >= static_cast<int>(resources_.size()))
      throw InputError(pair_name(r) + ": resource " + std::to_string(id) +
                       " does not exist, there are " + std::to_string(resources_.size()));
}

const Network::RepeatedLinks& Network::repeated_links(int period) const {
  const std::scoped_lock lock(*repeated_mutex_);
  const auto at = repeated_.find(period);
  if (at != repeated_.end()) return at->second;
  return repeated_.emplace(period, find_repeated_links(*this, period)).first->second;
}

int Network::find(int src, int dst, int channel) const {
  if (src < 0 || src >= ranks_ || dst < 0 || dst >= ranks_) return -1;
  const auto ends = [this](int route) { return routes_[route].dst; };
  const auto found = std::ranges::equal_range(by_ends_.begin() + first_of_[src],
                                              by_ends_.begin() + first_of_[src + 1], dst, {}, ends);
  return found.empty() ? -1 : found[channel % found.size()];
}

}  // namespace tuccl
