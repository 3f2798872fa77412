// Python view of cuts, edge splitting, tree packing and duals.
#include "tuccl/packing.h"

#include <nanobind/nanobind.h>
#include <nanobind/stl/pair.h>
#include <nanobind/stl/tuple.h>
#include <nanobind/stl/vector.h>

#include <algorithm>
#include <tuple>

#include "bindings.h"
#include "tuccl/greedy.h"

namespace nb = nanobind;
using namespace nb::literals;

namespace tuccl {
namespace {

using unlocked = nb::call_guard<nb::gil_scoped_release>;
using Triple = std::tuple<int, int, std::int64_t>;

std::vector<Arc> arcs_from(const std::vector<Triple>& triples) {
  std::vector<Arc> arcs;
  arcs.reserve(triples.size());
  for (const auto& [tail, head, capacity] : triples) arcs.push_back({tail, head, capacity});
  return arcs;
}

using DemandFields = std::tuple<int, bool, bool>;  // root, reduce, broadcast

std::vector<ChunkDemand> demands_from(const std::vector<DemandFields>& fields) {
  std::vector<ChunkDemand> demands;
  demands.reserve(fields.size());
  for (const auto& [root, reduce, broadcast] : fields) demands.push_back({root, reduce, broadcast});
  return demands;
}

using SendFields = std::pair<int, std::vector<int>>;  // route, sends before it

/// Numbers of the sends by start; of those that wait, the longest chain of sends goes first.
std::vector<int> start_order(const Network& network, const std::vector<SendFields>& fields,
                             double chunk_bytes) {
  std::vector<greedy::Send> sends;
  for (const auto& [route, after] : fields) {
    greedy::Send& send = sends.emplace_back();
    send.chunk = static_cast<int>(sends.size()) - 1;
    send.route = route;
    send.after = after;
  }
  for (std::size_t n = sends.size(); n-- > 0;)
    for (const int before : sends[n].after)
      if (before >= 0 && before < static_cast<int>(n))
        sends[before].priority = std::max(sends[before].priority, sends[n].priority + 1);
  std::vector<int> order;
  const greedy::PeriodicNetwork timed = greedy::periodic_network(network, chunk_bytes);
  for (const greedy::Send& send : greedy::list_schedule(timed, sends)) order.push_back(send.chunk);
  return order;
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
      [](int vertices, const std::vector<Triple>& arcs, const std::vector<std::int64_t>& chunks,
         std::vector<int> of) {
        Shortfall worst = shortfall(vertices, arcs_from(arcs), chunks, false, std::move(of));
        return std::pair(worst.chunks, std::move(worst.side));
      },
      unlocked(), "vertices"_a, "arcs"_a, "chunks_per_root"_a, "of"_a = std::vector<int>{},
      "Chunks that some rank (one of `of`, if any) cannot get over `arcs` (tail, head, capacity) "
      "where rank r (ranks are the first vertices) has `chunks_per_root[r]`, and the side of the "
      "cut that stops them.");
  m.def(
      "suffices",
      [](int vertices, const std::vector<Triple>& arcs, const std::vector<std::int64_t>& chunks) {
        return shortfall(vertices, arcs_from(arcs), chunks, true).chunks == 0;
      },
      unlocked(), "vertices"_a, "arcs"_a, "chunks_per_root"_a,
      "Whether every rank can get all chunks.");
  m.def(
      "min_cut",
      [](int vertices, const std::vector<Triple>& arcs, int source, int sink) {
        MinCut cut = min_cut(vertices, arcs_from(arcs), source, sink);
        return std::pair(cut.capacity, std::move(cut.side));
      },
      unlocked(), "vertices"_a, "arcs"_a, "source"_a, "sink"_a,
      "The capacity of a minimum cut (which is that of a maximum flow), and the source's side.");
  m.def(
      "group_cuts",
      [](int vertices, const std::vector<Triple>& arcs, int ranks,
         const std::vector<std::vector<int>>& groups) {
        return group_cuts(vertices, arcs_from(arcs), ranks, groups);
      },
      unlocked(), "vertices"_a, "arcs"_a, "ranks"_a, "groups"_a,
      "For each of `groups` of ranks the capacity of a minimum cut from it to the other ranks.");
  m.def(
      "distances", &distances, unlocked(), "vertices"_a, "arcs"_a, "lengths"_a, "sources"_a,
      "The least length from any of `sources` to each vertex over `arcs` (tail, head); else inf.");
  m.def("diameter", &diameter, unlocked(), "vertices"_a, "arcs"_a, "lengths"_a, "ranks"_a,
        "sources"_a,
        "The largest distance to a rank from any of `sources` over `arcs` (tail, head) of "
        "`lengths`; or inf.");
  m.def(
      "split_relays",
      [](int vertices, const std::vector<Triple>& arcs, const std::vector<std::int64_t>& chunks) {
        std::vector<Triple> pairs;
        for (const Arc& arc : split_relays(vertices, arcs_from(arcs), chunks))
          pairs.emplace_back(arc.tail, arc.head, arc.capacity);
        return pairs;
      },
      unlocked(), "vertices"_a, "arcs"_a, "chunks_per_root"_a,
      "Arcs between ranks alone over which every rank can still get all chunks.");
  m.def(
      "pack_trees",
      [](const std::vector<Triple>& arcs, const std::vector<std::int64_t>& chunks) {
        return pack_trees(arcs_from(arcs), chunks);
      },
      unlocked(), "arcs"_a, "chunks_per_root"_a,
      "Trees over `arcs` between ranks, shallow where possible: `chunks_per_root[r]` from rank r.");
  m.def(
      "modulo_order",
      [](const std::vector<std::tuple<int, int, double, std::vector<int>>>& fields) {
        std::vector<BlockSend> sends;
        for (const auto& [block, sum, duration, after] : fields)
          sends.push_back({block, sum, duration, after});
        return modulo_order(sends);
      },
      unlocked(), "sends"_a,
      "Numbers of sends (thread block, sum that it adds to or -1, part of a pass, earlier sends "
      "that it waits for) in an order by which thread blocks wait little for each other.");
  m.def(
      "reroute",
      [](const Network& network, const std::vector<DemandFields>& demands, int rounds,
         double target, int reduce_depth, int broadcast_depth) {
        std::vector<std::tuple<int, std::vector<int>, std::vector<int>>> trees;
        for (ChunkTrees& chunk : reroute(network, demands_from(demands),
                                         {rounds, target, reduce_depth, broadcast_depth}))
          trees.emplace_back(chunk.root, std::move(chunk.reduce), std::move(chunk.broadcast));
        return trees;
      },
      unlocked(), "network"_a, "demands"_a, nb::kw_only(), "rounds"_a, "target"_a, "reduce_depth"_a,
      "broadcast_depth"_a,
      "(root, parents of the reduction tree, parents of the broadcast tree) for each demand (root "
      "or -1, reduce, broadcast), such that the busiest resource has little to carry.");
  m.def(
      "route_demands",
      [](const Network& network, const std::vector<std::pair<int, int>>& pairs, int rounds,
         double target) {
        std::vector<Demand> demands;
        demands.reserve(pairs.size());
        for (const auto& [src, dst] : pairs) demands.push_back({src, dst});
        return route_demands(network, demands, rounds, target);
      },
      unlocked(), "network"_a, "demands"_a, nb::kw_only(), "rounds"_a, "target"_a,
      "The numbers of the routes that each chunk (src, dst) takes in turn, such that the busiest "
      "resource has little to carry; stops early where it needs no more than `target`.");
  m.def(
      "flow_duals",
      [](int vertices, const std::vector<Triple>& arcs, int ranks, int rounds) {
        return flow_duals(vertices, arcs_from(arcs), ranks, rounds);
      },
      unlocked(), "vertices"_a, "arcs"_a, "ranks"_a, "rounds"_a,
      "A price for each of `arcs` (tail, head, capacity): high where chunks from every rank to "
      "every other congest it.");
  m.def("start_order", &start_order, unlocked(), "network"_a, "sends"_a, "chunk_bytes"_a,
        "Numbers of `sends` (route, earlier sends that it waits for) in the order of a list "
        "schedule: resources serve one chunk at a time, the longest chain of sends first.");
}

}  // namespace tuccl
