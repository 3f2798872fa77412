#include "tuccl/network.h"

#include <algorithm>
#include <cmath>

#include "tuccl/error.h"

namespace tuccl {
namespace {

constexpr int kMostRanks = 8192;

std::string pair_name(const Route& r) {
  return "route " + std::to_string(r.src) + " > " + std::to_string(r.dst);
}

}  // namespace

Network::Network(int ranks, std::vector<Resource> resources, std::vector<Route> routes)
    : ranks_(ranks), resources_(std::move(resources)), routes_(std::move(routes)) {
  if (ranks < 1 || ranks > kMostRanks)
    throw InputError("network of " + std::to_string(ranks) + " ranks: expected 1 to " +
                     std::to_string(kMostRanks));
  check_resources();
  by_pair_.assign(static_cast<std::size_t>(ranks) * ranks, -1);
  next_.assign(routes_.size(), -1);
  for (std::size_t i = routes_.size(); i-- > 0;) {
    check_route(i);
    int& first = by_pair_[static_cast<std::size_t>(routes_[i].src) * ranks + routes_[i].dst];
    next_[i] = first;
    first = static_cast<int>(i);
  }
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

int Network::find(int src, int dst, int channel) const {
  if (src < 0 || src >= ranks_ || dst < 0 || dst >= ranks_) return -1;
  const int first = by_pair_[static_cast<std::size_t>(src) * ranks_ + dst];
  if (first < 0 || next_[first] < 0) return first;
  int count = 0;
  for (int at = first; at >= 0; at = next_[at]) ++count;
  int route = first;
  for (int turn = channel % count; turn > 0; --turn) route = next_[route];
  return route;
}

}  // namespace tuccl
