#pragma once
#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <vector>

#include "tuccl/words.h"

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
template <>
inline constexpr Words<2> kWords<Transport>{"transport", {"p2p", "net"}};

/// The fixed path from one rank to another, through every shared resource. Channels take the
/// routes of one pair in turn, channel 0 the first given.
struct Route {
  int src = 0;
  int dst = 0;
  std::vector<int> resources;  ///< Indices into Network::resources.
  double latency_us = 0;       ///< Sum over the links of the path.
  Transport transport = Transport::kP2p;
};

/// A topology as the simulator sees it. Every ordered pair of distinct ranks
/// that a program may use has a route.
class Network {
 public:
  /// Throws InputError for a rate that is not positive, an unknown resource or
  /// rank.
  Network(int ranks, std::vector<Resource> resources, std::vector<Route> routes);

  int ranks() const { return ranks_; }
  const std::vector<Resource>& resources() const { return resources_; }
  const std::vector<Route>& routes() const { return routes_; }

  /// Index of the route from `src` to `dst` for `channel`, or -1 where there is none.
  int find(int src, int dst, int channel = 0) const;

  using RepeatedLinks = std::optional<std::vector<int>>;

  /// By resource the one that stands for all that repeat it, if the routes repeat by `period`
  /// ranks: each is another one's with every rank and resource that much further on, and none
  /// crosses two that are alike. Nothing where they do not, nor where ranks share an adapter: it
  /// serves them in turn. Found once for each period.
  const RepeatedLinks& repeated_links(int period) const;

 private:
  void check_resources() const;
  void check_route(std::size_t index) const;

  int ranks_;
  std::vector<Resource> resources_;
  std::vector<Route> routes_;
  std::vector<int> by_ends_;   ///< Routes by source, then destination, then as given.
  std::vector<int> first_of_;  ///< By source: where its routes begin there.
  mutable std::map<int, RepeatedLinks> repeated_;
  std::unique_ptr<std::mutex> repeated_mutex_ = std::make_unique<std::mutex>();
};

}  // namespace tuccl
