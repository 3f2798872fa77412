// Python view of time-expanded greedy planning.
#include "tuccl/greedy.h"

#include <nanobind/nanobind.h>
#include <nanobind/stl/pair.h>
#include <nanobind/stl/tuple.h>
#include <nanobind/stl/vector.h>

#include <tuple>

#include "bindings.h"

namespace nb = nanobind;
using namespace nb::literals;

namespace tuccl {
namespace {

using LaneFields = std::tuple<int, int, int, bool, double, std::vector<std::pair<int, double>>>;
using LegFields = std::tuple<int, std::vector<int>, double>;

Roads roads_of(int blocks, std::vector<int> hosts, int wires, double tiles,
               const std::vector<LaneFields>& lanes) {
  Roads roads{blocks, std::move(hosts), wires, tiles, {}};
  for (const auto& [tail, head, turn, inter, alpha, way] : lanes) {
    Lane lane{tail, head, turn, inter, alpha, {}};
    for (const auto& [wire, us] : way) lane.way.push_back({wire, us});
    roads.lanes.push_back(std::move(lane));
  }
  return roads;
}

}  // namespace

void bind_greedy(nb::module_& m) {
  nb::class_<Roads>(m, "Roads", "What a greedy plan may use: lanes over wires that are shared.")
      .def(
          "__init__",
          [](Roads* self, int blocks, std::vector<int> hosts, int wires, double tiles,
             const std::vector<LaneFields>& lanes) {
            new (self) Roads(roads_of(blocks, std::move(hosts), wires, tiles, lanes));
          },
          "blocks"_a, "hosts"_a, "wires"_a, "tiles"_a, "lanes"_a,
          "`lanes`: (tail, head, blocks on, between hosts, latency in us, [(wire, us busy)]).")
      .def_ro("blocks", &Roads::blocks, "Blocks of ranks that all do the same.")
      .def_ro("hosts", &Roads::hosts, "By rank of a block.")
      .def_ro("tiles", &Roads::tiles, "How often the executor goes through a plan.");
  nb::class_<Send>(m, "Send", "An item on its way over a lane.")
      .def(nb::init<int, int, double, double>(), "item"_a, "lane"_a, "start_us"_a, "end_us"_a)
      .def_ro("item", &Send::item, "The number that the sender knows it by.")
      .def_ro("lane", &Send::lane)
      .def_ro("start_us", &Send::start_us)
      .def_ro("end_us", &Send::end_us);
  nb::class_<GreedyPlan>(m, "GreedyPlan", "The best of several starts.")
      .def_ro("time_us", &GreedyPlan::time_us, "As estimated.")
      .def_ro("start", &GreedyPlan::start, "The start that found it; -1 where none found any.")
      .def_ro("sends", &GreedyPlan::sends, "In order of start.")
      .def_ro("item", &GreedyPlan::item, "Without a plan: an item that cannot get to `rank`.")
      .def_ro("rank", &GreedyPlan::rank);
  m.def(
      "spread_items",
      [](const Roads& roads, const std::vector<int>& holders,
         const std::vector<std::vector<int>>& leaving, int starts, std::uint64_t seed,
         int threads) { return spread_items(roads, holders, leaving, {starts, seed, threads}); },
      nb::call_guard<nb::gil_scoped_release>(), "roads"_a, "holders"_a, "leaving"_a, nb::kw_only(),
      "starts"_a, "seed"_a, "threads"_a = 0,
      "Sends by which each rank gets each item of `holders` once; `leaving` names by rank the "
      "items "
      "that it may take off its host (empty: all). The same for equal arguments on any threads.");
  m.def(
      "deliver_items",
      [](const Roads& roads, const std::vector<std::tuple<int, int, int>>& freights,
         const std::vector<std::vector<int>>& carried, int starts, std::uint64_t seed,
         int threads) {
        std::vector<Freight> all;
        all.reserve(freights.size());
        for (const auto& [origin, target, place] : freights) all.push_back({origin, target, place});
        return deliver_items(roads, all, carried, {starts, seed, threads});
      },
      nb::call_guard<nb::gil_scoped_release>(), "roads"_a, "freights"_a, "carried"_a, nb::kw_only(),
      "starts"_a, "seed"_a, "threads"_a = 0,
      "Sends by which each of `freights` (origin, target, place) gets to its target; off its host "
      "by ranks whose part of `carried` names the place (empty: by any).");
  m.def(
      "timetable",
      [](const Roads& roads, const std::vector<LegFields>& legs) {
        std::vector<Leg> all;
        all.reserve(legs.size());
        for (const auto& [lane, after, urgency] : legs) all.push_back({lane, after, urgency});
        return timetable(roads, all);
      },
      nb::call_guard<nb::gil_scoped_release>(), "roads"_a, "legs"_a,
      "When `legs` (lane, legs before it, urgency) start, wires serving one at a time: sends by "
      "time of start, whose item is the leg's number.");
  m.def("estimated_us", &estimated_us, "roads"_a, "sends"_a,
        "The first tile's time and the busiest wire's for each further one, in us.");
}

}  // namespace tuccl
