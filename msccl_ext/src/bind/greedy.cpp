// Python view of greedy synthesis on time-expanded networks.
#include "tuccl/greedy.h"

#include <nanobind/nanobind.h>
#include <nanobind/stl/tuple.h>
#include <nanobind/stl/vector.h>

#include <tuple>

#include "bindings.h"

namespace nb = nanobind;
using namespace nb::literals;

namespace tuccl {
void bind_greedy(nb::module_& m) {
  using greedy::GreedyResult, greedy::PeriodicNetwork, greedy::Send;
  nb::class_<PeriodicNetwork>(m, "PeriodicNetwork",
                              "Routes of a machine that looks the same from each of its periods.")
      .def(
          "__init__",
          [](PeriodicNetwork* self, const Network& network, const std::vector<int>& hosts,
             int ranks, std::vector<int> orbit, std::vector<double> orbit_load,
             const std::vector<int>& routes, double chunk_bytes, int tiles, bool reverse) {
            const greedy::Rotation rotation{ranks, std::move(orbit), std::move(orbit_load)};
            new (self) PeriodicNetwork(greedy::periodic_network(network, hosts, rotation, routes,
                                                                chunk_bytes, tiles, reverse));
          },
          "network"_a, "hosts"_a, "ranks"_a, "orbit"_a, "orbit_load"_a, "routes"_a, nb::kw_only(),
          "chunk_bytes"_a, "tiles"_a = 1, "reverse"_a = false,
          "`hosts`: by rank. `ranks`: of a period. `orbit`: of each resource. `orbit_load`: "
          "periods "
          "whose messages each of its resources carries. `routes`: numbers of those to use.");
  nb::class_<Send>(m, "Send", "A chunk over a route.")
      .def(
          "__init__",
          [](Send* self, int chunk, int route, bool reduce, std::vector<int> after,
             double priority) {
            new (self) Send{chunk, route, reduce, 0, 0, std::move(after), priority};
          },
          "chunk"_a, "route"_a, "reduce"_a = false, "after"_a = std::vector<int>(),
          "priority"_a = 0.0)
      .def_ro("chunk", &Send::chunk, "The number that the sender knows it by.")
      .def_ro("route", &Send::route)
      .def_ro("reduce", &Send::reduce, "Whether the receiver adds it to what it has.")
      .def_ro("start_us", &Send::start_us)
      .def_ro("end_us", &Send::end_us);
  nb::class_<GreedyResult>(m, "GreedyResult", "The best of several starts.")
      .def_ro("time_us", &GreedyResult::time_us, "As estimated.")
      .def_ro("start", &GreedyResult::start, "The start that gave it; -1 where none gave any.")
      .def_ro("sends", &GreedyResult::sends, "In order of start.")
      .def_ro("chunk", &GreedyResult::chunk, "Without sends: a chunk that cannot reach `rank`.")
      .def_ro("rank", &GreedyResult::rank);
  m.def(
      "plan_multicast",
      [](const PeriodicNetwork& network, const std::vector<int>& sources,
         const std::vector<std::vector<int>>& relayed, int starts, std::uint64_t seed,
         int threads) {
        return greedy::plan_multicast(network, sources, relayed, {starts, seed, threads});
      },
      nb::call_guard<nb::gil_scoped_release>(), "network"_a, "sources"_a, "relayed"_a,
      nb::kw_only(), "starts"_a, "seed"_a, "threads"_a = 0,
      "Sends that bring each chunk of `sources` to each rank once; `relayed` names by rank the "
      "chunks that it may take off its host (empty: all). Threads do not change the result.");
  m.def(
      "plan_unicast",
      [](const PeriodicNetwork& network, const std::vector<std::tuple<int, int, int>>& demands,
         const std::vector<std::vector<int>>& relayed, int starts, std::uint64_t seed,
         int threads) {
        std::vector<greedy::Demand> all;
        all.reserve(demands.size());
        for (const auto& [src, dst, owner] : demands) all.push_back({src, dst, owner});
        return greedy::plan_unicast(network, all, relayed, {starts, seed, threads});
      },
      nb::call_guard<nb::gil_scoped_release>(), "network"_a, "demands"_a, "relayed"_a,
      nb::kw_only(), "starts"_a, "seed"_a, "threads"_a = 0,
      "Sends that meet each of `demands` (src, dst, owner); `relayed` names by rank the owners "
      "whose chunks it may take off its host (empty: all). Chunks have their demand's number.");
  m.def("list_schedule", &greedy::list_schedule, nb::call_guard<nb::gil_scoped_release>(),
        "network"_a, "sends"_a,
        "`sends` with their times, in order of start, where resources serve one at a time.");
}

}  // namespace tuccl
