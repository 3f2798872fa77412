#pragma once
#include <cstdint>
#include <string>
#include <vector>

namespace tuccl {

/// A shared part of the machine: one direction of a link.
struct Resource {
  std::string name;  ///< "src>dst" by node id.
  std::string kind;  ///< The link's kind: "nvlink", "pcie", "network" ...
  double bandwidth_gbs = 0;
};

/// How a pair of ranks is joined. `kNet` routes cross a network adapter and
/// are carried by proxies; `kP2p` routes are written by the GPU itself.
enum class Transport : std::uint8_t { kP2p, kNet };

/// The fixed way from one rank to another, through every shared part.
struct Route {
  int src = 0;
  int dst = 0;
  std::vector<int> resources;  ///< Indices into Network::resources.
  double latency_us = 0;       ///< Sum over the links on the way.
  Transport transport = Transport::kP2p;
};

/// A topology as the simulator sees it. Every ordered pair of distinct ranks
/// that a program may use has a route.
struct Network {
  int ranks = 0;
  std::vector<Resource> resources;
  std::vector<Route> routes;
};

}  // namespace tuccl
