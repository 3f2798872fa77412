// Python view of flows, edge splitting and tree packing.
#include "tuccl/packing.h"

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

using Triple = std::tuple<int, int, std::int64_t>;

std::vector<Arc> arcs_from(const std::vector<Triple>& triples) {
  std::vector<Arc> arcs;
  arcs.reserve(triples.size());
  for (const auto& [tail, head, capacity] : triples) arcs.push_back({tail, head, capacity});
  return arcs;
}

Ways ways_from(int ranks, const std::vector<std::pair<int, int>>& pairs,
               std::vector<std::vector<int>> wires, std::vector<double> rates) {
  Ways ways{ranks, {}, {}, std::move(wires), std::move(rates)};
  for (const auto& [tail, head] : pairs) {
    ways.tails.push_back(tail);
    ways.heads.push_back(head);
  }
  return ways;
}

std::vector<Errand> errands_from(const std::vector<std::tuple<int, bool, bool>>& triples) {
  std::vector<Errand> errands;
  errands.reserve(triples.size());
  for (const auto& [root, up, down] : triples) errands.push_back({root, up, down});
  return errands;
}

}  // namespace

void bind_packing(nb::module_& m) {
  nb::class_<Tree>(m, "Tree", "Equal trees that span all ranks from one root.")
      .def_ro("root", &Tree::root)
      .def_ro("weight", &Tree::weight, "How many trees.")
      .def_ro("parent", &Tree::parent, "By rank; -1 at the root.")
      .def_ro("order", &Tree::order, "Ranks, each after its parent.");
  m.def(
      "shortfall",
      [](int vertices, const std::vector<Triple>& arcs, const std::vector<std::int64_t>& feeds) {
        const std::vector<Arc> network = arcs_from(arcs);
        nb::gil_scoped_release unlocked;
        Shortfall found = shortfall(vertices, network, feeds);
        return std::pair(found.units, std::move(found.side));
      },
      "vertices"_a, "arcs"_a, "feeds"_a,
      "Units of `feeds` (one number a rank, ranks are the first vertices) that some rank cannot "
      "get over `arcs` (tail, head, capacity), and the side of the cut that stops them.");
  m.def(
      "suffices",
      [](int vertices, const std::vector<Triple>& arcs, const std::vector<std::int64_t>& feeds) {
        const std::vector<Arc> network = arcs_from(arcs);
        nb::gil_scoped_release unlocked;
        return suffices(vertices, network, feeds);
      },
      "vertices"_a, "arcs"_a, "feeds"_a, "Whether every rank gets all units of `feeds`.");
  m.def(
      "isolation",
      [](int vertices, const std::vector<Triple>& arcs, int ranks,
         const std::vector<std::vector<int>>& groups) {
        const std::vector<Arc> network = arcs_from(arcs);
        nb::gil_scoped_release unlocked;
        return isolation(vertices, network, ranks, groups);
      },
      "vertices"_a, "arcs"_a, "ranks"_a, "groups"_a,
      "For each of `groups` of ranks (the first vertices) what can leave it for the other ranks "
      "over `arcs` (tail, head, capacity).");
  m.def("diameter", &diameter, nb::call_guard<nb::gil_scoped_release>(), "vertices"_a, "arcs"_a,
        "lengths"_a, "ranks"_a,
        "The largest distance between two ranks (the first vertices) over `arcs` (tail, head) of "
        "`lengths`; inf where no way leads.");
  m.def(
      "split_relays",
      [](int vertices, const std::vector<Triple>& arcs, const std::vector<std::int64_t>& feeds) {
        const std::vector<Arc> network = arcs_from(arcs);
        std::vector<Triple> pairs;
        {
          nb::gil_scoped_release unlocked;
          for (const Arc& arc : split_relays(vertices, network, feeds))
            pairs.emplace_back(arc.tail, arc.head, arc.capacity);
        }
        return pairs;
      },
      "vertices"_a, "arcs"_a, "feeds"_a,
      "Arcs between ranks alone over which every rank still gets all units.");
  m.def(
      "pack_trees",
      [](const std::vector<Triple>& arcs, const std::vector<std::int64_t>& feeds) {
        const std::vector<Arc> network = arcs_from(arcs);
        nb::gil_scoped_release unlocked;
        return pack_trees(network, feeds);
      },
      "arcs"_a, "feeds"_a,
      "Trees over `arcs` between ranks, shallow where possible: `feeds[r]` in all from rank r.");
  m.def(
      "reroute",
      [](int ranks, const std::vector<std::pair<int, int>>& pairs,
         std::vector<std::vector<int>> wires, std::vector<double> rates,
         const std::vector<std::tuple<int, bool, bool>>& errands, int rounds, double target,
         int deepest_up, int deepest_down) {
        const Ways ways = ways_from(ranks, pairs, std::move(wires), std::move(rates));
        const std::vector<Errand> all = errands_from(errands);
        std::vector<std::tuple<int, std::vector<int>, std::vector<int>>> found;
        {
          nb::gil_scoped_release unlocked;
          for (Journey& journey : reroute(ways, all, {rounds, target, deepest_up, deepest_down}))
            found.emplace_back(journey.root, std::move(journey.up), std::move(journey.down));
        }
        return found;
      },
      "ranks"_a, "pairs"_a, "wires"_a, "rates"_a, "errands"_a, nb::kw_only(), "rounds"_a,
      "target"_a, "deepest_up"_a, "deepest_down"_a,
      "(root, parents up, parents down) for each errand (root or -1, up, down), such that the "
      "busiest wire has little to carry; stops early where it needs no more than `target`.");
  m.def(
      "price_trees",
      [](int ranks, const std::vector<std::pair<int, int>>& pairs,
         std::vector<std::vector<int>> wires, std::vector<double> rates,
         const std::vector<std::tuple<int, bool, bool>>& errands, int rounds) {
        const Ways ways = ways_from(ranks, pairs, std::move(wires), std::move(rates));
        const std::vector<Errand> all = errands_from(errands);
        nb::gil_scoped_release unlocked;
        TreePrices found = price_trees(ways, all, rounds);
        return std::pair(std::move(found.price), found.cost);
      },
      "ranks"_a, "pairs"_a, "wires"_a, "rates"_a, "errands"_a, "rounds"_a,
      "A whole price for each wire, and what the cheapest trees of all errands (root or -1, up, "
      "down) cost at these: over the price of all rates, a time that no trees can beat.");
  m.def(
      "route_parcels",
      [](int ranks, const std::vector<std::pair<int, int>>& pairs,
         std::vector<std::vector<int>> wires, std::vector<double> rates,
         const std::vector<std::pair<int, int>>& parcels, int rounds, double target) {
        const Ways ways = ways_from(ranks, pairs, std::move(wires), std::move(rates));
        std::vector<Parcel> all;
        all.reserve(parcels.size());
        for (const auto& [src, dst] : parcels) all.push_back({src, dst});
        nb::gil_scoped_release unlocked;
        return route_parcels(ways, all, rounds, target);
      },
      "ranks"_a, "pairs"_a, "wires"_a, "rates"_a, "parcels"_a, nb::kw_only(), "rounds"_a,
      "target"_a,
      "The numbers of the pairs that each parcel (src, dst) takes in turn, such that the busiest "
      "wire has little to carry; stops early where it needs no more than `target`.");
  m.def(
      "scarcity",
      [](int vertices, const std::vector<Triple>& arcs, int ranks, int rounds) {
        const std::vector<Arc> network = arcs_from(arcs);
        nb::gil_scoped_release unlocked;
        return scarcity(vertices, network, ranks, rounds);
      },
      "vertices"_a, "arcs"_a, "ranks"_a, "rounds"_a,
      "A price for each of `arcs` (tail, head, capacity): high where chunks from every rank to "
      "every other crowd.");
}

}  // namespace tuccl
