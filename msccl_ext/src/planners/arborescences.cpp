// Packing of spanning arborescences (Edmonds 1973; Tarjan 1974): ForestColl's
// spanning tree construction.
#include <algorithm>
#include <numeric>
#include <tuple>

#include "planners/max_flow.h"
#include "tuccl/error.h"
#include "tuccl/packing.h"

namespace tuccl {
namespace packing {
namespace {

/// Ranks up to which every arc is checked by a flow at once; above, arcs are first taken unchecked.
constexpr std::size_t kMostChecked = 64;

/// Equal partial trees.
struct Batch {
  Tree tree;
  std::vector<int> depth;      ///< By rank; -1 where the tree does not reach yet.
  std::vector<char> excluded;  ///< By arc: taking it would leave too little, now and later.
  int vertex = 0;              ///< Of the network: leads to the ranks that the tree reaches.
  int source_arc = 0;          ///< From the source to `vertex`.

  bool spans() const { return tree.order.size() == depth.size(); }
};

/// Grows trees so that what is left always suffices for what is still to grow.
///
/// Notes: a batch may take up to `maxflow(x, y) - weight of the other batches` of arc (x, y), with
/// a path from x to each other batch, as wide as its weight, and on to the ranks it reaches: the
/// slack in the condition of Edmonds' theorem, that every set has as many arcs entering as batches
/// that do not reach into it. Any order of growing is correct; all grow level by level here, so
/// that none is left with the detours.
class Packer {
 public:
  /// Without `checked`, arcs are taken without a maximum flow: fast, but it may fail.
  Packer(const std::vector<Arc>& arcs, const std::vector<std::int64_t>& chunks_per_root,
         bool checked)
      : arcs_(arcs),
        ranks_(static_cast<int>(chunks_per_root.size())),
        checked_(checked),
        network_(ranks_ + 1) {
    leaving_.resize(ranks_);
    for (std::size_t a = 0; a < arcs_.size(); ++a) {
      network_.add_arc(arcs_[a].tail, arcs_[a].head, arcs_[a].capacity);
      leaving_[arcs_[a].tail].push_back(static_cast<int>(a));
    }
    for (int rank = 0; rank < ranks_; ++rank)
      source_arc_.push_back(network_.add_arc(ranks_, rank, 0));
    for (int root = 0; root < ranks_; ++root)
      if (chunks_per_root[root] > 0) open(root_only(root, chunks_per_root[root]));
  }

  /// The trees; none where it failed.
  std::vector<Tree> run() {
    for (int level = 0; level < ranks_ && pending_ > 0; ++level)
      while (grow_all(level)) {
      }
    std::vector<Tree> trees;
    if (pending_ > 0) return trees;
    for (Batch& batch : batches_) trees.push_back(std::move(batch.tree));
    std::stable_sort(trees.begin(), trees.end(),
                     [](const Tree& a, const Tree& b) { return a.root < b.root; });
    return trees;
  }

 private:
  Batch root_only(int root, std::int64_t weight) const {
    Batch batch;
    batch.tree = {root, weight, std::vector<int>(ranks_, -1), {root}};
    batch.depth.assign(ranks_, -1);
    batch.depth[root] = 0;
    batch.excluded.assign(arcs_.size(), 0);
    return batch;
  }

  /// Adds a batch, and its vertex.
  void open(Batch batch) {
    batch.vertex = network_.add_vertex();
    batch.source_arc = network_.add_arc(ranks_, batch.vertex, 0);
    for (const int rank : batch.tree.order) reach(batch, rank);
    batches_.push_back(std::move(batch));
    set_pending(batches_.back(), !batches_.back().spans());
  }

  void reach(const Batch& batch, int rank) {
    if (checked_) network_.add_arc(batch.vertex, rank, kEndless);
  }

  /// Reserves capacity for a batch, or releases it.
  void set_pending(Batch& batch, bool pending) {
    pending_ -= network_.capacity(batch.source_arc);
    network_.set(batch.source_arc, pending ? batch.tree.weight : 0);
    pending_ += network_.capacity(batch.source_arc);
  }

  /// Gives each batch one arc from a rank of depth `level`; whether any got one.
  bool grow_all(int level) {
    bool any = false;
    for (std::size_t i = 0; i < batches_.size(); ++i)
      if (!batches_[i].spans()) any |= grow(i, level);
    return any;
  }

  bool grow(std::size_t index, int level) {
    set_pending(batches_[index], false);
    const auto [arc, chunks] = choose(batches_[index], level);
    if (arc >= 0 && chunks < batches_[index].tree.weight) {
      Batch rest = batches_[index];
      rest.tree.weight -= chunks;
      batches_[index].tree.weight = chunks;
      open(std::move(rest));
    }
    Batch& batch = batches_[index];
    if (arc >= 0) take(batch, arc);
    set_pending(batch, !batch.spans());
    return arc >= 0;
  }

  void take(Batch& batch, int arc) {
    const auto [tail, head, _] = arcs_[arc];
    arcs_[arc].capacity -= batch.tree.weight;
    network_.set(arc, arcs_[arc].capacity);
    reach(batch, head);
    batch.tree.parent[head] = tail;
    batch.tree.order.push_back(head);
    batch.depth[head] = batch.depth[tail] + 1;
  }

  /// The arc from a rank of depth `level` that leads on with most of the batch.
  std::pair<int, std::int64_t> choose(Batch& batch, int level) {
    std::pair<int, std::int64_t> best{-1, 0};
    for (const auto& [_, __, arc] : candidates(batch, level)) {
      const std::int64_t chunks = allowance(batch, arc);
      if (chunks == 0) batch.excluded[arc] = 1;
      if (chunks > best.second) best = {arc, chunks};
      if (chunks == batch.tree.weight) break;
    }
    return best;
  }

  std::vector<std::tuple<std::int64_t, int, int>> candidates(const Batch& batch, int level) const {
    std::vector<std::tuple<std::int64_t, int, int>> arcs;
    for (const int tail : batch.tree.order) {
      if (batch.depth[tail] > level) break;
      for (const int arc : leaving_[tail]) {
        const auto& [_, head, capacity] = arcs_[arc];
        if (capacity == 0 || batch.depth[head] >= 0 || batch.excluded[arc]) continue;
        arcs.emplace_back(-capacity, (head - batch.tree.root + ranks_) % ranks_, arc);
      }
    }
    std::sort(arcs.begin(), arcs.end());
    return arcs;
  }

  /// How many of the trees of a batch that is not pending may take `arc`.
  std::int64_t allowance(const Batch& batch, int arc) {
    const std::int64_t most = std::min(batch.tree.weight, arcs_[arc].capacity);
    if (!checked_) return most;
    const int from_tail = source_arc_[arcs_[arc].tail];
    network_.set(from_tail, kEndless);
    const std::int64_t flow = network_.flow(ranks_, arcs_[arc].head, pending_ + most);
    network_.set(from_tail, 0);
    return std::max<std::int64_t>(0, flow - pending_);
  }

  std::vector<Arc> arcs_;
  int ranks_;
  bool checked_;
  FlowNetwork network_;  ///< Ranks, then the source, then a vertex for each batch.
  std::vector<std::vector<int>> leaving_;
  std::vector<int> source_arc_;
  std::vector<Batch> batches_;
  std::int64_t pending_ = 0;  ///< Weight of all unfinished batches but the one that grows.
};

}  // namespace
}  // namespace packing

std::vector<Tree> pack_trees(const std::vector<Arc>& arcs,
                             const std::vector<std::int64_t>& chunks_per_root) {
  if (shortfall(static_cast<int>(chunks_per_root.size()), arcs, chunks_per_root, true).chunks > 0)
    throw InputError("the capacities do not let every rank get all chunks");
  if (chunks_per_root.size() > packing::kMostChecked) {
    auto trees = packing::Packer(arcs, chunks_per_root, false).run();
    if (!trees.empty()) return trees;
  }
  auto trees = packing::Packer(arcs, chunks_per_root, true).run();
  if (trees.empty()) throw InputError("no root has a chunk");
  return trees;
}

}  // namespace tuccl
