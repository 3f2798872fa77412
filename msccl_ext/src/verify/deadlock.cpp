// Deadlock: cycles in program order, dependencies, messages and FIFO credit
// (docs/reference/msccl.md).
#include <algorithm>
#include <limits>
#include <string>

#include "tuccl/knobs.h"
#include "verify/stages.h"

namespace tuccl {
namespace {

constexpr int kShownEdges = 12;
constexpr std::int64_t kMostPasses = 65536;  ///< MSCCL_MAX_ITER: flags of later passes repeat.

enum class Why { kOrder, kDependency, kMessage, kCredit };

/// The graph of transfers when `merged` chunks travel in one: a step of `cnt`
/// chunks is ceil(cnt / merged) nodes in a row. Edges are kept as predecessors;
/// every kind has at most one per node.
class TransferGraph {
 public:
  TransferGraph(const Flow& flow, int merged);

  /// The nodes in an order that respects every edge; short where there is a cycle.
  std::vector<int> order() const;
  /// A short cycle through nodes that `done` lacks, each waiting for the next.
  std::vector<int> cycle(const std::vector<int>& done) const;

  int size() const { return static_cast<int>(step_.size()); }
  int step_of(int node) const { return step_[at(node)]; }
  Why why(int node, int predecessor) const;

 private:
  static std::size_t at(int i) { return static_cast<std::size_t>(i); }
  void link_steps();
  void link_connection(const Connection&);
  std::vector<int> transfers(int tb, bool (*does)(Op)) const;
  template <class Visit>
  void predecessors(int node, Visit visit) const {
    for (const auto& kind : before_)
      if (kind[at(node)] >= 0) visit(kind[at(node)]);
  }

  const Flow& flow_;
  std::vector<int> step_;       ///< By node.
  std::vector<int> first_;      ///< First node of each step, and one past the last.
  std::vector<int> before_[4];  ///< By Why, then by node; -1 for none.
};

TransferGraph::TransferGraph(const Flow& flow, int merged) : flow_(flow) {
  for (int s = 0; s < flow.steps(); ++s) {
    first_.push_back(size());
    const int count = std::max(1, flow.step(s).count);
    step_.insert(step_.end(), at((count + merged - 1) / merged), s);
  }
  first_.push_back(size());
  for (auto& kind : before_) kind.assign(at(size()), -1);
  link_steps();
  for (const Connection& c : flow.connections) link_connection(c);
}

void TransferGraph::link_steps() {
  for (int n = 1; n < size(); ++n)
    if (flow_.tb_of(step_of(n)) == flow_.tb_of(step_of(n - 1)))
      before_[static_cast<int>(Why::kOrder)][at(n)] = n - 1;
  for (int s = 0; s < flow_.steps(); ++s)
    if (const int awaited = flow_.waits_for(s); awaited >= 0)
      before_[static_cast<int>(Why::kDependency)][at(first_[at(s)])] = first_[at(awaited + 1)] - 1;
}

std::vector<int> TransferGraph::transfers(int tb, bool (*does)(Op)) const {
  std::vector<int> out;
  for (int s = flow_.first_step(tb); s < flow_.first_step(tb + 1); ++s)
    if (does(flow_.step(s).op))
      for (int n = first_[at(s)]; n < first_[at(s + 1)]; ++n) out.push_back(n);
  return out;
}

void TransferGraph::link_connection(const Connection& c) {
  const std::vector<int> sent = transfers(c.send_tb, sends);
  const std::vector<int> received = transfers(c.recv_tb, receives);
  const auto depth = at(fifo_transfers(flow_.program().protocol));
  for (std::size_t k = 0; k < sent.size(); ++k) {
    before_[static_cast<int>(Why::kMessage)][at(received[k])] = sent[k];
    if (k >= depth) before_[static_cast<int>(Why::kCredit)][at(sent[k])] = received[k - depth];
  }
}

Why TransferGraph::why(int node, int predecessor) const {
  for (const Why kind : {Why::kCredit, Why::kMessage, Why::kDependency})
    if (before_[static_cast<int>(kind)][at(node)] == predecessor) return kind;
  return Why::kOrder;
}

std::vector<int> TransferGraph::order() const {
  std::vector<int> waiting(at(size()), 0);
  std::vector<int> head(at(size()) + 1, 0);
  for (int n = 0; n < size(); ++n)
    predecessors(n, [&](int p) {
      ++waiting[at(n)];
      ++head[at(p) + 1];
    });
  for (std::size_t i = 1; i < head.size(); ++i) head[i] += head[i - 1];
  std::vector<int> after(at(head.back()));
  std::vector<int> fill(head.begin(), head.end() - 1);
  for (int n = 0; n < size(); ++n) predecessors(n, [&](int p) { after[at(fill[at(p)]++)] = n; });

  std::vector<int> out;
  out.reserve(at(size()));
  for (int n = 0; n < size(); ++n)
    if (waiting[at(n)] == 0) out.push_back(n);
  for (std::size_t i = 0; i < out.size(); ++i)
    for (int e = head[at(out[i])]; e < head[at(out[i]) + 1]; ++e)
      if (--waiting[at(after[at(e)])] == 0) out.push_back(after[at(e)]);
  return out;
}

std::vector<int> TransferGraph::cycle(const std::vector<int>& done) const {
  std::vector<bool> finished(at(size()), false);
  for (const int n : done) finished[at(n)] = true;
  // Every unfinished node waits for an unfinished one: walk until one repeats.
  const auto blocker = [&](int node) {
    int found = -1;
    predecessors(node, [&](int p) {
      if (!finished[at(p)]) found = p;
    });
    return found;
  };
  int node =
      static_cast<int>(std::find(finished.begin(), finished.end(), false) - finished.begin());
  std::vector<bool> met(at(size()), false);
  for (; !met[at(node)]; node = blocker(node)) met[at(node)] = true;

  // Breadth first from there back to it: the shortest cycle through it.
  std::vector<int> toward(at(size()), -1);
  std::vector<int> queue{node};
  for (std::size_t i = 0; i < queue.size() && toward[at(node)] < 0; ++i)
    predecessors(queue[i], [&](int p) {
      if (finished[at(p)] || toward[at(p)] >= 0) return;
      toward[at(p)] = queue[i];
      queue.push_back(p);
    });
  std::vector<int> out{node};
  for (int n = toward[at(node)]; n != node; n = toward[at(n)]) out.push_back(n);
  std::reverse(out.begin() + 1, out.end());
  return out;
}

std::string reason(Why why) {
  switch (why) {
    case Why::kDependency:
      return "depends on";
    case Why::kMessage:
      return "receives from";
    case Why::kCredit:
      return "needs a free slot, so a receive by";
    case Why::kOrder:
      break;
  }
  return "runs after";
}

std::string tell(const TransferGraph& graph, const Flow& flow, const std::vector<int>& cycle) {
  std::string out;
  int edges = 0;
  for (std::size_t i = 0; i < cycle.size(); ++i) {
    const int next = cycle[(i + 1) % cycle.size()];
    const Why why = graph.why(cycle[i], next);
    // Runs of program order within one block read as one edge.
    const bool merge = why == Why::kOrder && i + 1 < cycle.size() &&
                       graph.why(next, cycle[(i + 2) % cycle.size()]) == Why::kOrder;
    if (merge) continue;
    if (++edges > kShownEdges) return out + " ...";
    out += " " + reason(why) + " " + describe(flow.place(graph.step_of(next))) + ",";
  }
  out.back() = ' ';
  return out + "(round again)";
}

bool safe(const Flow& flow, int merged) {
  const TransferGraph graph(flow, merged);
  return static_cast<int>(graph.order().size()) == graph.size();
}

/// Least number of chunks a transfer must hold for no cycle to exist. More
/// transfers only add constraints, so the answer splits 1..71 in two.
int least_merged(const Flow& flow) {
  int unsafe = 0;
  int enough = kMostCount;
  while (enough - unsafe > 1) {
    const int middle = (unsafe + enough) / 2;
    (safe(flow, middle) ? enough : unsafe) = middle;
  }
  return enough;
}

std::int64_t buffer_of(const Program& p, Dialect dialect, std::int64_t buffer_bytes) {
  return buffer_bytes > 0 ? buffer_bytes : facts(p.protocol, dialect).default_buffer_bytes;
}

/// A transfer holds floor(slice / chunk) chunks (docs/reference/simulator.md).
void check_split(const Flow& flow, Dialect dialect, std::int64_t buffer_bytes, Findings& out) {
  if (safe(flow, 1)) return;
  const Program& p = flow.program();
  if (p.period > 0)  // all ranks may be safe where these seem to wait for themselves
    return out.error("size-range", {}, "not safe at every size by the ranks of a period");
  const std::int64_t buffer = buffer_of(p, dialect, buffer_bytes);
  const int merged = least_merged(flow);
  const std::int64_t most = slice_bytes(p.protocol, buffer) / merged * p.nchunks;
  out.limit_safe_bytes(most);
  if (largest_size(p, dialect) <= most && most > 0) return;
  const TransferGraph graph(flow, 1);
  const std::vector<int> cycle = graph.cycle(graph.order());
  const std::int64_t written = dialect == Dialect::kFork ? most + 1 : most;
  out.error("size-range", flow.place(graph.step_of(cycle.front())),
            "above " + std::to_string(most) + " bytes (a buffer of " + std::to_string(buffer) +
                ") steps split into more transfers than the FIFO holds and deadlock:" +
                tell(graph, flow, cycle) +
                (most > 0 ? "; write maxBytes=\"" + std::to_string(written) + "\" at most"
                          : "; no size is safe"));
}

/// The executor's kernel numbers a published step by pass and position, and the
/// number of passes wraps: a wait in a later one may meet an old number.
void check_passes(const Flow& flow, Dialect dialect, std::int64_t buffer_bytes, Findings& out) {
  if (dialect != Dialect::kExecutor) return;
  int waiting = 0;
  while (waiting < flow.steps() && flow.waits_for(waiting) < 0) ++waiting;
  if (waiting == flow.steps()) return;
  const Program& p = flow.program();
  const std::int64_t buffer = buffer_of(p, dialect, buffer_bytes);
  const std::int64_t most = slice_bytes(p.protocol, buffer) * kMostPasses * p.nchunks;
  const bool beyond = p.max_bytes.value_or(0) > most;
  const bool usual = buffer == facts(p.protocol, dialect).default_buffer_bytes;
  if (!usual || beyond) out.limit_safe_bytes(most);
  if (beyond)
    out.error("size-range", flow.place(waiting),
              "above " + std::to_string(most) + " bytes (a buffer of " + std::to_string(buffer) +
                  ") a call takes more than 65536 passes, and dependencies count no further: "
                  "write maxBytes=\"" +
                  std::to_string(most) + "\" at most");
}

}  // namespace

std::optional<std::vector<int>> check_deadlock(const Flow& flow, Dialect dialect,
                                               std::int64_t buffer_bytes, Findings& findings) {
  const TransferGraph whole(flow, kMostCount);
  std::vector<int> order = whole.order();
  if (static_cast<int>(order.size()) < whole.size()) {
    const std::vector<int> cycle = whole.cycle(order);
    findings.error("deadlock", flow.place(whole.step_of(cycle.front())),
                   "waits for itself:" + tell(whole, flow, cycle));
    return std::nullopt;
  }
  check_split(flow, dialect, buffer_bytes, findings);
  check_passes(flow, dialect, buffer_bytes, findings);
  return order;
}

}  // namespace tuccl
