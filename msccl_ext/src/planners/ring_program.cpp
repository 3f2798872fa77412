#include "tuccl/ring_program.h"

#include <algorithm>
#include <string>

#include "tuccl/error.h"

namespace tuccl {
namespace {

/// The chunks of one rank on one channel, and its place in the channel's order.
class Ring {
 public:
  Ring(const Program& program, const std::vector<int>& order, int channel, int position)
      : order_(order),
        ranks_(static_cast<int>(order.size())),
        channel_(channel),
        channels_(program.nchannels),
        position_(position) {}

  /// The rank `back` places before this one.
  int before(int back) const { return order_[((position_ - back) % ranks_ + ranks_) % ranks_]; }

  /// The offset of the channel's part of the data of that rank.
  int part(int back) const { return before(back) * channels_ + channel_; }

  /// The rounds of sums on their way: each starts at its owner's next rank and ends at its owner.
  void sums(std::vector<Step>& steps, Op last, int at) const {
    steps.push_back({Op::kSend, Buffer::kInput, part(1), Buffer::kOutput, -1, 1});
    for (int back = 2; back < ranks_; ++back)
      steps.push_back({Op::kRrs, Buffer::kInput, part(back), Buffer::kOutput, -1, 1});
    steps.push_back({last, Buffer::kInput, part(0), Buffer::kOutput, at, 1});
  }

  /// The rounds in which a rank passes on the part that it received last.
  void parts(std::vector<Step>& steps) const {
    for (int back = 1; back < ranks_; ++back)
      steps.push_back({back < ranks_ - 1 ? Op::kRcs : Op::kRecv, Buffer::kInput, -1,
                       Buffer::kOutput, part(back), 1});
  }

  std::vector<Step> steps(Collective collective) const {
    std::vector<Step> steps;
    steps.reserve(2 * order_.size());
    if (collective == Collective::kAllGather)
      steps.push_back({Op::kSend, Buffer::kInput, channel_, Buffer::kOutput, -1, 1});
    if (collective == Collective::kReduceScatter) sums(steps, Op::kRrc, channel_);
    if (collective == Collective::kAllReduce) sums(steps, Op::kRrcs, part(0));
    if (collective != Collective::kReduceScatter) parts(steps);
    return steps;
  }

  /// The one step of a rank of a line, at the place `at` from its start.
  Step line_step(bool sums, int at) const {
    const bool first = at == 0;
    const bool last = at == ranks_ - 1;
    const Op op = first  ? Op::kSend
                  : sums ? (last ? Op::kRrc : Op::kRrs)
                         : (last ? Op::kRecv : Op::kRcs);
    const bool reads = first || sums;
    const bool writes = last || (!sums && !first);
    return {op, Buffer::kInput, reads ? channel_ : -1, Buffer::kOutput, writes ? channel_ : -1, 1};
  }

 private:
  const std::vector<int>& order_;
  int ranks_;
  int channel_;
  int channels_;
  int position_;
};

void check(Collective collective, const std::vector<std::vector<int>>& orders, int root) {
  if (collective == Collective::kAllToAll || collective == Collective::kGather ||
      collective == Collective::kScatter)
    throw InputError("NCCL has no ring for " + std::string(to_string(collective)));
  if (orders.empty() || orders[0].size() < 2)
    throw InputError("a ring has one channel or more, and two ranks or more");
  const int ranks = static_cast<int>(orders[0].size());
  for (std::vector<int> order : orders) {
    std::sort(order.begin(), order.end());
    for (int rank = 0; rank < ranks; ++rank)
      if (static_cast<int>(order.size()) != ranks || order[rank] != rank)
        throw InputError("a ring passes each rank once");
  }
  if (root < 0 || root >= ranks) throw InputError("root " + std::to_string(root) + ": no rank");
}

/// The fewest ranks by which all orders repeat: who comes after rank r + n is n further than who
/// comes after rank r. 0 if none but all.
int period_of(const std::vector<std::vector<int>>& orders) {
  const int ranks = static_cast<int>(orders[0].size());
  std::vector<std::vector<int>> next(orders.size(), std::vector<int>(ranks));
  for (std::size_t channel = 0; channel < orders.size(); ++channel)
    for (int at = 0; at < ranks; ++at)
      next[channel][orders[channel][at]] = orders[channel][(at + 1) % ranks];
  const auto repeats = [&](int period) {
    return std::all_of(next.begin(), next.end(), [&](const std::vector<int>& after) {
      for (int rank = 0; rank < ranks; ++rank)
        if (after[(rank + period) % ranks] != (after[rank] + period) % ranks) return false;
      return true;
    });
  };
  for (int period = 1; period < ranks; ++period)
    if (ranks % period == 0 && repeats(period)) return period;
  return 0;
}

}  // namespace

Program ring_program(Collective collective, const std::vector<std::vector<int>>& orders, int root) {
  check(collective, orders, root);
  const int ranks = static_cast<int>(orders[0].size());
  const int channels = static_cast<int>(orders.size());
  const bool line = is_rooted(collective);
  const bool sums = is_reducing(collective);
  Program program;
  program.collective = collective;
  program.ngpus = ranks;
  program.nchannels = channels;
  program.nchunks = line ? channels : ranks * channels;
  program.in_place = program.out_of_place = true;
  program.period = line ? 0 : period_of(orders);
  const int written = program.period > 0 ? program.period : ranks;
  for (int rank = 0; rank < written; ++rank) {
    const ChunkCounts counts = chunk_counts(collective, program.nchunks, ranks, rank, root);
    program.gpus.push_back({rank, counts.input, counts.output, 0, {}});
  }
  for (int channel = 0; channel < channels; ++channel) {
    const std::vector<int>& order = orders[channel];
    const int end = static_cast<int>(std::find(order.begin(), order.end(), root) - order.begin());
    for (int position = 0; position < ranks; ++position) {
      if (order[position] >= written) continue;
      const Ring ring(program, order, channel, position);
      ThreadBlock block{channel, ring.before(-1), ring.before(1), channel, {}};
      if (line) {
        const int at = (position - end - sums + ranks) % ranks;
        if (at == 0) block.recv_peer = -1;
        if (at == ranks - 1) block.send_peer = -1;
        block.steps.push_back(ring.line_step(sums, at));
      } else {
        block.steps = ring.steps(collective);
      }
      program.gpus[order[position]].threadblocks.push_back(std::move(block));
    }
  }
  for (Gpu& gpu : program.gpus) {  // the copies of what a rank has from its input to its output
    const bool root_copies = collective == Collective::kBroadcast && gpu.id == root;
    if (collective != Collective::kAllGather && !root_copies) continue;
    const int first = root_copies ? 0 : gpu.id * channels;
    for (int n = 0; n < channels; ++n)
      gpu.threadblocks.push_back({channels + n,
                                  -1,
                                  -1,
                                  0,
                                  {{Op::kCopy, Buffer::kInput, n, Buffer::kOutput, first + n, 1}}});
  }
  return program;
}

}  // namespace tuccl
