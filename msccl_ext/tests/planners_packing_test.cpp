// Trees fit into the arcs and span; relays split off leave every rank its flow; rerouted trees keep
// their limits: on random networks, by counting.
#include <algorithm>
#include <cmath>
#include <map>
#include <numeric>
#include <random>

#include "planners/max_flow.h"
#include "support/check.h"
#include "tuccl/packing.h"

namespace tuccl::packing {
namespace {

std::vector<Arc> random_arcs(std::mt19937& random, int vertices, int most) {
  std::vector<Arc> arcs;
  for (int a = 0; a < vertices; ++a)
    for (int b = 0; b < vertices; ++b)
      if (a != b && random() % 3 != 0)
        arcs.push_back({a, b, 1 + static_cast<std::int64_t>(random() % most)});
  return arcs;
}

std::vector<std::int64_t> random_chunks(std::mt19937& random, int ranks) {
  std::vector<std::int64_t> chunks(ranks);
  for (auto& units : chunks) units = random() % 3;
  chunks[0] += 1;
  return chunks;
}

/// The least cut between two vertices, over all sets.
std::int64_t least_cut(int vertices, const std::vector<Arc>& arcs, int source, int sink) {
  std::int64_t least = kEndless;
  for (unsigned set = 0; set < (1u << vertices); ++set) {
    if (!(set >> source & 1) || (set >> sink & 1)) continue;
    std::int64_t cut = 0;
    for (const Arc& arc : arcs)
      if ((set >> arc.tail & 1) && !(set >> arc.head & 1)) cut += arc.capacity;
    least = std::min(least, cut);
  }
  return least;
}

void flows_equal_the_least_cuts() {
  std::mt19937 random(1);
  for (int round = 0; round < 200; ++round) {
    const int vertices = 2 + static_cast<int>(random() % 6);
    const auto arcs = random_arcs(random, vertices, 5);
    FlowNetwork network(vertices);
    for (const Arc& arc : arcs) network.add_arc(arc.tail, arc.head, arc.capacity);
    const std::int64_t flow = network.flow(0, vertices - 1);
    CHECK(flow == least_cut(vertices, arcs, 0, vertices - 1));
    CHECK(network.flow(0, vertices - 1, flow / 2) == flow / 2);
  }
}

/// Every rank of the tree hangs on one that comes before it.
void check_spans(const Tree& tree, int ranks) {
  CHECK(static_cast<int>(tree.order.size()) == ranks && tree.order[0] == tree.root);
  std::vector<int> place(ranks, -1);
  for (int k = 0; k < ranks; ++k) {
    const int rank = tree.order[k];
    CHECK(place[rank] < 0);
    place[rank] = k;
    CHECK((tree.parent[rank] < 0) == (rank == tree.root));
    if (rank != tree.root) CHECK(place[tree.parent[rank]] >= 0 && place[tree.parent[rank]] < k);
  }
}

void check_packed(const std::vector<Arc>& arcs, const std::vector<std::int64_t>& chunks) {
  std::map<std::pair<int, int>, std::int64_t> left;
  for (const Arc& arc : arcs) left[{arc.tail, arc.head}] += arc.capacity;
  std::vector<std::int64_t> rooted(chunks.size());
  for (const Tree& tree : pack_trees(arcs, chunks)) {
    check_spans(tree, static_cast<int>(chunks.size()));
    CHECK(tree.weight > 0);
    rooted[tree.root] += tree.weight;
    for (const int rank : tree.order)
      if (rank != tree.root) left[{tree.parent[rank], rank}] -= tree.weight;
  }
  CHECK(rooted == chunks);
  for (const auto& [_, units] : left) CHECK(units >= 0);
}

void trees_are_packed_wherever_cuts_allow() {
  std::mt19937 random(2);
  int packed = 0;
  for (int round = 0; round < 400; ++round) {
    const int ranks = 2 + static_cast<int>(random() % 6);
    const auto arcs = random_arcs(random, ranks, 6);
    const auto chunks = random_chunks(random, ranks);
    if (shortfall(ranks, arcs, chunks).chunks > 0) {
      CHECK(!test::refusal([&] { pack_trees(arcs, chunks); }).empty());
      continue;
    }
    check_packed(arcs, chunks);
    ++packed;
  }
  CHECK(packed > 100);
}

/// Units of the chunks that cannot leave the side for a rank outside it.
void a_shortfall_names_its_cut() {
  std::mt19937 random(3);
  int lacking = 0;
  for (int round = 0; round < 200; ++round) {
    const int ranks = 2 + static_cast<int>(random() % 5);
    const auto arcs = random_arcs(random, ranks, 3);
    const auto chunks = random_chunks(random, ranks);
    const Shortfall found = shortfall(ranks, arcs, chunks);
    if (found.chunks == 0) continue;
    std::int64_t inside = 0, leaving = 0;
    const auto in = [&](int v) { return std::count(found.side.begin(), found.side.end(), v) > 0; };
    for (int rank = 0; rank < ranks; ++rank) inside += in(rank) ? chunks[rank] : 0;
    for (const Arc& arc : arcs) leaving += in(arc.tail) && !in(arc.head) ? arc.capacity : 0;
    CHECK(inside - leaving == found.chunks);
    ++lacking;
  }
  CHECK(lacking > 20);
}

/// Hosts of ranks on a switch each, one link from each switch to a core: full duplex.
std::vector<Arc> switched(std::mt19937& random, int ranks, int switches) {
  std::vector<Arc> arcs;
  const auto duplex = [&](int a, int b, std::int64_t units) {
    arcs.push_back({a, b, units});
    arcs.push_back({b, a, units});
  };
  for (int rank = 0; rank < ranks; ++rank) duplex(rank, ranks + rank % switches, 4 + random() % 8);
  for (int s = 0; s < switches; ++s) duplex(ranks + s, ranks + switches, 4 + random() % 20);
  return arcs;
}

void relays_split_off_leave_every_flow() {
  std::mt19937 random(4);
  int split = 0;
  for (int round = 0; round < 60; ++round) {
    const int ranks = 3 + static_cast<int>(random() % 5), switches = 1 + random() % 3;
    const auto arcs = switched(random, ranks, switches);
    const std::vector<std::int64_t> chunks(ranks, 1);
    const int vertices = ranks + switches + 1;
    if (shortfall(vertices, arcs, chunks).chunks > 0) continue;
    const auto pairs = split_relays(vertices, arcs, chunks);
    for (const Arc& pair : pairs) CHECK(std::max(pair.tail, pair.head) < ranks);
    CHECK(shortfall(ranks, pairs, chunks).chunks == 0);
    check_packed(pairs, chunks);
    ++split;
  }
  CHECK(split > 20);
}

Network random_network(std::mt19937& random, int ranks) {
  std::vector<Resource> resources;
  const auto add = [&] {
    resources.push_back({"link", "", 1.0 + random() % 9});
    return static_cast<int>(resources.size()) - 1;
  };
  for (int rank = 0; rank < ranks; ++rank) add();
  std::vector<Route> routes;
  for (int a = 0; a < ranks; ++a)
    for (int b = 0; b < ranks; ++b)
      if (a != b && random() % 4 != 0) routes.push_back({a, b, {a, add()}});
  return {ranks, resources, routes};
}

int depth_of(const std::vector<int>& parent, int rank) {
  int arcs = 0;
  for (; parent[rank] >= 0; rank = parent[rank]) CHECK(++arcs < static_cast<int>(parent.size()));
  return arcs;
}

void rerouted_trees_span_and_stay_shallow() {
  std::mt19937 random(5);
  int found = 0;
  for (int round = 0; round < 60; ++round) {
    const int ranks = 3 + static_cast<int>(random() % 6), deepest = 1 + random() % 3;
    const Network network = random_network(random, ranks);
    const std::vector<ChunkDemand> demands(5, ChunkDemand{round % 2 ? -1 : 0, true, true});
    std::vector<ChunkTrees> trees;
    const RerouteOptions options{8, 0.0, deepest, deepest};
    if (!test::refusal([&] { trees = reroute(network, demands, options); }).empty()) continue;
    for (const ChunkTrees& chunk : trees)
      for (int rank = 0; rank < ranks; ++rank)
        for (const auto* parent : {&chunk.reduce, &chunk.broadcast}) {
          CHECK(((*parent)[rank] < 0) == (rank == chunk.root));
          CHECK(depth_of(*parent, rank) <= deepest);
        }
    ++found;
  }
  CHECK(found > 20);
}

void nonsense_is_refused() {
  CHECK(!test::refusal([] { shortfall(1, {{0, 3, 1}}, {1}); }).empty());
  CHECK(!test::refusal([] { shortfall(1, {}, {}); }).empty());
  CHECK(!test::refusal([] { shortfall(2, {{0, 1, -1}}, {1, 1}); }).empty());
  CHECK(!test::refusal([] { split_relays(2, {}, {1, 1}); }).empty());
  CHECK(!test::refusal([] { min_cut(2, {{0, 1, 1}}, 0, 0); }).empty());
  const Network one_way(2, {{"a>b", "", 1.0}}, {{0, 1, {0}}});
  CHECK(!test::refusal([&] { reroute(one_way, {{9, true, true}}, {}); }).empty());
}

/// Two blocks pass on to each other: each first does what the other waits for.
void sends_that_others_wait_for_come_first() {
  const std::vector<BlockSend> sends = {
      {0, -1, 0.5, {}}, {1, -1, 0.5, {0}}, {1, -1, 0.5, {}}, {0, -1, 0.5, {2}}};
  CHECK((modulo_order(sends) == std::vector<int>{0, 2, 1, 3}));
  CHECK(modulo_order({}).empty());
  CHECK(!test::refusal([] { modulo_order({{0, -1, 1, {0}}}); }).empty());
  CHECK(!test::refusal([] { modulo_order({{1, -1, 1, {}}}); }).empty());
  CHECK(!test::refusal([] { modulo_order({{0, -1, std::nan(""), {}}}); }).empty());
}

}  // namespace
}  // namespace tuccl::packing

int main() {
  tuccl::packing::flows_equal_the_least_cuts();
  tuccl::packing::trees_are_packed_wherever_cuts_allow();
  tuccl::packing::a_shortfall_names_its_cut();
  tuccl::packing::relays_split_off_leave_every_flow();
  tuccl::packing::rerouted_trees_span_and_stay_shallow();
  tuccl::packing::nonsense_is_refused();
  tuccl::packing::sends_that_others_wait_for_come_first();
}
