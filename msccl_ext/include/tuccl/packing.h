// Packing of weighted trees (Zhao et al., ForestColl, arXiv 2402.06787) and its relatives: cuts,
// switch removal by edge splitting, tree packing, rerouting, and duals that prove bounds.
#pragma once
#include <cstdint>
#include <utility>
#include <vector>

#include "tuccl/network.h"

namespace tuccl {

/// A directed arc of whole capacity. Ranks are the first vertices of a graph, relays the others.
struct Arc {
  int tail = 0;
  int head = 0;
  std::int64_t capacity = 0;
};

/// Chunks that some rank cannot get, and the source's side of the cut that stops them.
struct Shortfall {
  std::int64_t chunks = 0;
  std::vector<int> side;
};

/// The capacity of a minimum cut, and the source's side of it.
struct MinCut {
  std::int64_t capacity = 0;
  std::vector<int> side;
};

/// `weight` equal trees that span all ranks from `root`.
struct Tree {
  int root = 0;
  std::int64_t weight = 0;
  std::vector<int> parent;  ///< By rank; -1 at the root.
  std::vector<int> order;   ///< Ranks, each after its parent.
};

/// The most chunks, out of `chunks_per_root` (by rank), that some rank cannot get, or some of `of`
/// where it names any; with `any` those of the first such rank. Throws InputError where arguments
/// do not fit together.
Shortfall shortfall(int vertices, const std::vector<Arc>& arcs,
                    const std::vector<std::int64_t>& chunks_per_root, bool any = false,
                    std::vector<int> of = {});

/// A minimum cut between two vertices. Throws InputError where arguments do not fit together.
MinCut min_cut(int vertices, const std::vector<Arc>& arcs, int source, int sink);

/// For each group of ranks the capacity of a minimum cut between it and the other ranks.
/// Throws InputError where arguments do not fit together.
std::vector<std::int64_t> group_cuts(int vertices, const std::vector<Arc>& arcs, int ranks,
                                     const std::vector<std::vector<int>>& groups);

/// The length of the shortest path from any of `sources` to each vertex over `arcs` (tail, head);
/// infinity where there is none. Throws InputError where arguments do not fit together.
std::vector<double> distances(int vertices, const std::vector<std::pair<int, int>>& arcs,
                              const std::vector<double>& lengths, const std::vector<int>& sources);

/// The largest distance to a rank from any of `sources`. Throws InputError as `distances`.
double diameter(int vertices, const std::vector<std::pair<int, int>>& arcs,
                const std::vector<double>& lengths, int ranks, const std::vector<int>& sources);

/// Switch removal by edge splitting: arcs between ranks that stand for the paths through
/// relays, such that every rank can still get all chunks. Capacity that no rank needs may be lost.
std::vector<Arc> split_relays(int vertices, const std::vector<Arc>& arcs,
                              const std::vector<std::int64_t>& chunks_per_root);

/// Spanning trees within the arcs' capacities: `chunks_per_root[r]` in all from each rank r. Throws
/// InputError where some rank cannot get all chunks.
std::vector<Tree> pack_trees(const std::vector<Arc>& arcs,
                             const std::vector<std::int64_t>& chunks_per_root);

/// A chunk that is reduced up a tree to its root, broadcast down one from there, or both. Root -1:
/// any rank.
struct ChunkDemand {
  int root = -1;
  bool reduce = false;
  bool broadcast = false;
};

/// The trees of one chunk: the parent of each rank, -1 at the root; empty where none is needed.
struct ChunkTrees {
  int root = 0;
  std::vector<int> reduce, broadcast;
};

struct RerouteOptions {
  int rounds = 0;     ///< At most.
  double target = 0;  ///< Seconds of the busiest resource, for chunks of 1 GB, that are enough.
  int reduce_depth = 0;
  int broadcast_depth = 0;  ///< Most arcs from a root.
};

/// Trees for all demands: chosen one by one, then replaced in turn, so that the busiest resource
/// has little to carry. Throws InputError where the routes do not join all ranks by trees so
/// shallow.
std::vector<ChunkTrees> reroute(const Network& network, const std::vector<ChunkDemand>& demands,
                                const RerouteOptions& options);

/// A chunk that one rank has and another needs.
struct Demand {
  int src = 0;
  int dst = 0;
};

/// The numbers of the routes that each demand's chunk takes in turn, such that the busiest resource
/// has little to carry; stops early where it needs no more than `target` (s, for chunks of 1 GB).
/// Throws InputError where no routes lead there.
std::vector<std::vector<int>> route_demands(const Network& network,
                                            const std::vector<Demand>& demands, int rounds,
                                            double target);

/// Duals of the maximum concurrent flow, one for each arc: where every rank has a chunk for every
/// other, the sum of all shortest paths over the sum of dual times capacity is a time that no
/// routing can beat.
std::vector<double> flow_duals(int vertices, const std::vector<Arc>& arcs, int ranks, int rounds);

/// A send that goes through a thread block, which sends one at a time.
struct BlockSend {
  int block = 0;
  int sum = -1;            ///< The sum that it adds to, one send after another; -1: none.
  double duration = 0;     ///< Part of a pass.
  std::vector<int> after;  ///< Earlier sends that it waits for.
};

/// The numbers of `sends` in an order by which thread blocks wait little for each other where one
/// pass over all follows the other. A thread block whose sends span more than a pass, as some come
/// late, begins later in the next round: as in Rau 1994, but with a window for each thread block,
/// since it keeps its steps in one order. Throws InputError for sends that wait for later ones.
std::vector<int> modulo_order(const std::vector<BlockSend>& sends);

}  // namespace tuccl
