// Rates are max-min fair after any history: no link above its rate, and every
// bundle meets its own limit or a full link on which nobody is faster.
#include <algorithm>
#include <cmath>
#include <random>

#include "sim/share.h"
#include "support/check.h"

namespace tuccl::sim {
namespace {

struct World {
  Network network;
  Links links;
  std::vector<int> flows;  ///< By bundle.
};

World random_world(std::mt19937& random) {
  const int links = 2 + static_cast<int>(random() % 7);
  const int ranks = 8;
  std::vector<Resource> resources;
  for (int i = 0; i < links; ++i) resources.push_back({"", "nvlink", 1.0 + random() % 20});
  std::vector<Route> routes;
  for (int a = 0; a < ranks; ++a)
    for (int b = 0; b < ranks; ++b) {
      if (a == b) continue;
      Route r{a, b, {}, 0, Transport::kP2p};
      for (int i = 0; i < links; ++i)
        if (random() % 3 == 0) r.resources.push_back(i);
      if (r.resources.empty()) r.resources.push_back(static_cast<int>(random() % links));
      routes.push_back(r);
    }
  World w{Network(ranks, resources, routes), {}, {}};
  for (std::size_t i = 0; i < routes.size(); ++i)
    w.links.bundles.push_back(
        {static_cast<int>(i), random() % 2 ? kUnlimited : 500.0 * (1 + random() % 8)});
  for (const Resource& r : resources) w.links.capacity.push_back(r.bandwidth_gbs * 1e3);
  w.flows.assign(routes.size(), 0);
  return w;
}

void check_fair(const World& w, const Sharing& sharing) {
  const auto& routes = w.network.routes();
  std::vector<double> used(w.links.capacity.size(), 0.0), fastest(w.links.capacity.size(), 0.0);
  for (std::size_t b = 0; b < w.flows.size(); ++b)
    for (const int id : routes[b].resources) {
      used[id] += w.flows[b] * sharing.rate(static_cast<int>(b));
      fastest[id] = std::max(fastest[id], sharing.rate(static_cast<int>(b)));
    }
  for (std::size_t l = 0; l < used.size(); ++l) CHECK(used[l] <= w.links.capacity[l] * (1 + 1e-9));
  for (std::size_t b = 0; b < w.flows.size(); ++b) {
    if (w.flows[b] == 0) continue;
    const double rate = sharing.rate(static_cast<int>(b));
    CHECK(rate > 0);
    CHECK(rate <= w.links.bundles[b].cap * (1 + 1e-9));
    bool bound = rate >= w.links.bundles[b].cap * (1 - 1e-9);
    for (const int id : routes[b].resources)
      bound |= used[id] >= w.links.capacity[id] * (1 - 1e-9) && rate >= fastest[id] * (1 - 1e-9);
    CHECK(bound);
  }
}

void fair_after_any_history() {
  std::mt19937 random(1);
  for (int round = 0; round < 60; ++round) {
    World w = random_world(random);
    w.links.network = &w.network;
    Sharing sharing(w.links);
    double now = 0;
    double started = 0;
    for (int event = 0; event < 150; ++event) {
      if (random() % 5 < 3) {
        for (int n = static_cast<int>(random() % 4); n >= 0; --n) {
          const int b = static_cast<int>(random() % w.flows.size());
          const double bytes = 1 + random() % 10000;
          sharing.start(now, b, bytes, b);
          started += bytes;
          ++w.flows[b];
        }
      } else if (std::isfinite(sharing.next_end())) {
        CHECK(sharing.next_end() >= now);
        now = sharing.next_end();
        --w.flows[sharing.end_next(now)];
      }
      sharing.update_rates(now);
      check_fair(w, sharing);
    }
    while (std::isfinite(sharing.next_end())) {
      now = sharing.next_end();
      --w.flows[sharing.end_next(now)];
      sharing.update_rates(now);
    }
    for (const int flows : w.flows) CHECK(flows == 0);
    double capacity = 0;
    for (std::size_t l = 0; l < w.links.capacity.size(); ++l) {
      CHECK(sharing.busy_us(static_cast<int>(l), now) <= now * (1 + 1e-12));
      capacity += w.links.capacity[l];
    }
    CHECK(now >= started / capacity * (1 - 1e-9));
  }
}

void two_flows_halve_a_link() {
  Links links;
  const Network network(2, {{"l", "nvlink", 10}}, {{0, 1, {0}, 0, Transport::kP2p}});
  links.network = &network;
  links.bundles = {{0, kUnlimited}, {0, 2000}};
  links.capacity = {10e3};
  Sharing sharing(links);
  sharing.start(0, 0, 10e3, 7);
  sharing.update_rates(0);
  CHECK(sharing.rate(0) == 10e3);
  sharing.start(0.5, 0, 10e3, 8);
  sharing.update_rates(0.5);
  CHECK(sharing.rate(0) == 5e3);
  sharing.start(0.5, 1, 10e3, 9);
  sharing.update_rates(0.5);
  CHECK(sharing.rate(1) == 2000 && sharing.rate(0) == 4e3);
  CHECK(sharing.next_end() == 0.5 + 5e3 / 4e3);
  CHECK(sharing.end_next(1.75) == 7);
}

}  // namespace
}  // namespace tuccl::sim

int main() {
  tuccl::sim::two_flows_halve_a_link();
  tuccl::sim::fair_after_any_history();
}
