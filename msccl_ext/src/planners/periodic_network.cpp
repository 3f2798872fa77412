// The first period of a network, with the time that a chunk occupies each resource.
#include <algorithm>
#include <map>
#include <numeric>

#include "tuccl/error.h"
#include "tuccl/greedy.h"

namespace tuccl::greedy {
namespace {

void check(const Network& network, const std::vector<int>& hosts, const Rotation& rotation,
           const std::vector<int>& routes, double chunk_bytes, int tiles) {
  const int orbits = static_cast<int>(rotation.orbit_load.size());
  const auto is_orbit = [&](int orbit) { return orbit >= 0 && orbit < orbits; };
  if (static_cast<int>(hosts.size()) != network.ranks() || rotation.ranks < 1 ||
      network.ranks() % rotation.ranks != 0)
    throw InputError("expected a host for each rank, and equal periods of ranks");
  if (rotation.orbit.size() != network.resources().size() ||
      !std::all_of(rotation.orbit.begin(), rotation.orbit.end(), is_orbit))
    throw InputError("expected an orbit for each resource");
  for (const int route : routes)
    if (route < 0 || route >= static_cast<int>(network.routes().size()) ||
        network.routes()[route].src >= rotation.ranks)
      throw InputError("route " + std::to_string(route) + ": expected one from the first period");
  if (!(chunk_bytes > 0) || tiles < 1) throw InputError("expected chunks of some bytes and tiles");
}

}  // namespace

PeriodicNetwork periodic_network(const Network& network, const std::vector<int>& hosts,
                                 const Rotation& rotation, const std::vector<int>& routes,
                                 double chunk_bytes, int tiles, bool reverse) {
  check(network, hosts, rotation, routes, chunk_bytes, tiles);
  PeriodicNetwork result;
  result.periods = network.ranks() / rotation.ranks;
  result.resources = static_cast<int>(rotation.orbit_load.size());
  result.tiles = tiles;
  std::map<int, int> numbers;  // of hosts, anew
  for (int rank = 0; rank < rotation.ranks; ++rank)
    result.hosts.push_back(
        numbers.try_emplace(hosts[rank], static_cast<int>(numbers.size())).first->second);
  for (const int number : routes) {
    const tuccl::Route& full = network.routes()[number];
    const int period = full.dst / rotation.ranks;
    Route route{full.src,        full.dst % rotation.ranks,
                period,          hosts[full.src] != hosts[full.dst],
                full.latency_us, {}};
    for (const int resource : full.resources) {
      const int orbit = rotation.orbit[resource];
      const double rate_gbs = network.resources()[resource].bandwidth_gbs;
      route.hops.push_back(
          {orbit, chunk_bytes / tiles * rotation.orbit_load[orbit] / rate_gbs / 1e3});
    }
    if (reverse) {
      std::swap(route.src, route.dst);
      route.period = (result.periods - period) % result.periods;
      std::reverse(route.hops.begin(), route.hops.end());
    }
    result.routes.push_back(std::move(route));
  }
  return result;
}

PeriodicNetwork periodic_network(const Network& network, double chunk_bytes) {
  Rotation rotation{network.ranks(), std::vector<int>(network.resources().size()), {}};
  std::iota(rotation.orbit.begin(), rotation.orbit.end(), 0);
  rotation.orbit_load.assign(rotation.orbit.size(), 1.0);
  std::vector<int> routes(network.routes().size());
  std::iota(routes.begin(), routes.end(), 0);
  return periodic_network(network, std::vector<int>(network.ranks(), 0), rotation, routes,
                          chunk_bytes);
}

}  // namespace tuccl::greedy
