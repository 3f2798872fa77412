#include "lowering/steps.h"

#include <algorithm>
#include <map>
#include <set>
#include <tuple>

namespace tuccl::lowering {
namespace {

/// The loader joins consecutive `re` into one step of at most 16 sources, and stops joining for
/// good after a thread block's 16th reduction (docs/reference/msccl.md, trap 8).
constexpr int kMostFused = 16;

/// Makes `re` steps publish where the loader would join what must not be joined.
void part_reductions(std::vector<Draft>& drafts) {
  int chain = 0;
  int total = 0;
  for (std::size_t k = 0; k < drafts.size(); ++k) {
    const Draft& draft = drafts[k];
    if (draft.op != Op::kReduce) {
      chain = 0;
      continue;
    }
    bool joins = chain > 0 && draft.waits.empty() && !drafts[k - 1].publishes &&
                 drafts[k - 1].dst == draft.dst && drafts[k - 1].src.buffer == draft.src.buffer;
    const bool full = chain == kMostFused || total >= kMostFused;
    if (joins && (full || drafts[k - 1].count != draft.count)) {
      drafts[k - 1].publishes = true;
      joins = false;
    }
    chain = joins ? chain + 1 : 1;
    ++total;
  }
}

/// The blocks' order in the file: those that others wait for first. A dependency names its thread
/// block in a signed byte, so these must have low numbers.
std::vector<int> awaited_first(const std::vector<Block>& blocks) {
  std::vector<bool> awaited(blocks.size());
  for (const Block& block : blocks)
    for (const Draft& draft : block.drafts)
      for (const auto& [other, at] : draft.waits) awaited[other] = true;
  std::vector<int> order(blocks.size());
  for (std::size_t b = 0; b < blocks.size(); ++b) order[b] = static_cast<int>(b);
  const auto rank = [&](int b) {
    return std::tuple(!awaited[b], blocks[b].channel, blocks[b].recv == kNone, b);
  };
  std::sort(order.begin(), order.end(), [&](int a, int b) { return rank(a) < rank(b); });
  return order;
}

/// The step number of each draft; nops that carry further waits count too.
std::vector<int> positions_of(const std::vector<Draft>& drafts) {
  std::vector<int> positions;
  int at = 0;
  for (const Draft& draft : drafts) {
    at += std::max(0, static_cast<int>(draft.waits.size()) - 1);
    positions.push_back(at++);
  }
  return positions;
}

/// New numbers for the scratch chunks that steps still use; runs stay runs.
std::map<int, int> scratch_slots(const std::vector<Block>& blocks) {
  std::map<int, int> slots;
  for (const Block& block : blocks)
    for (const Draft& draft : block.drafts)
      for (const Address at : {draft.src, draft.dst})
        if (at.buffer == Buffer::kScratch)
          for (int k = 0; k < draft.count; ++k) slots[at.offset + k] = 0;
  int next = 0;
  for (auto& [old, slot] : slots) slot = next++;
  return slots;
}

/// Writes the thread blocks of one rank.
class Writer {
 public:
  Writer(const std::vector<Block>& blocks, const std::vector<Connection>& connections,
         const std::map<int, int>& channels, const Rotation& rotation)
      : blocks_(blocks),
        connections_(connections),
        channels_(channels),
        rotation_(rotation),
        slots_(scratch_slots(blocks)),
        number_(blocks.size()) {
    for (const Block& block : blocks) positions_.push_back(positions_of(block.drafts));
  }

  void write(Gpu& gpu) {
    const std::vector<int> order = awaited_first(blocks_);
    for (std::size_t n = 0; n < order.size(); ++n) number_[order[n]] = static_cast<int>(n);
    gpu.scratch_chunks = static_cast<int>(slots_.size());
    for (const int b : order) {
      const Block& block = blocks_[b];
      const auto channel = channels_.find(block.channel);
      gpu.threadblocks.push_back({number_[b],
                                  block.send == kNone ? -1 : receiver_of(connections_[block.send]),
                                  block.recv == kNone ? -1 : connections_[block.recv].src,
                                  channel == channels_.end() ? 0 : channel->second,
                                  {}});
      for (const Draft& draft : block.drafts) write(draft, gpu.threadblocks.back().steps);
    }
  }

 private:
  /// Writes the nops that carry all waits but the last, and the step itself.
  void write(const Draft& draft, std::vector<Step>& steps) const {
    std::vector<std::pair<int, int>> waits;
    for (const auto& [block, at] : draft.waits)
      waits.emplace_back(number_[block], positions_[block][at]);
    std::sort(waits.begin(), waits.end());
    for (std::size_t n = 0; n + 1 < waits.size(); ++n) {
      Step& nop = steps.emplace_back();
      std::tie(nop.dep_tb, nop.dep_step) = waits[n];
    }
    const Address src = placed(draft.src);
    const Address dst = placed(draft.dst);
    Step& step = steps.emplace_back(
        Step{draft.op, src.buffer, src.offset, dst.buffer, dst.offset, draft.count});
    if (!waits.empty()) std::tie(step.dep_tb, step.dep_step) = waits.back();
    step.has_dep = draft.publishes;
  }

  /// The receiver as the sender below the period sees it.
  int receiver_of(const Connection& c) const {
    return rotation_.rank(c.dst, -rotation_.beyond(c.src));
  }

  Address placed(Address at) const {
    return at.buffer == Buffer::kScratch ? Address{at.buffer, slots_.at(at.offset)} : at;
  }

  const std::vector<Block>& blocks_;
  const std::vector<Connection>& connections_;
  const std::map<int, int>& channels_;
  const Rotation& rotation_;
  const std::map<int, int> slots_;
  std::vector<int> number_;                  ///< By thread block: its number in the file.
  std::vector<std::vector<int>> positions_;  ///< By thread block, draft: its step number.
};

}  // namespace

Program program_of(const Schedule& schedule, const Connections& connections, Blocks blocks) {
  std::set<int> used;
  for (const Connection& connection : connections.all) used.insert(connection.channel);
  std::map<int, int> channels;
  for (const int channel : used) channels.emplace(channel, static_cast<int>(channels.size()));
  Program program;
  program.collective = schedule.collective;
  program.ngpus = schedule.ranks;
  program.nchannels = std::max(1, static_cast<int>(channels.size()));
  program.nchunks = schedule.nchunks;
  program.group_size = schedule.groups.size;
  program.group_stride = schedule.groups.stride;
  program.period = schedule.period;
  const Rotation rotation = schedule.rotation();
  const int ranks = schedule.groups.ranks(schedule.ranks);
  for (int rank = 0; rank < schedule.written(); ++rank) {
    for (Block& block : blocks[rank]) part_reductions(block.drafts);
    const ChunkCounts counts =
        chunk_counts(schedule.collective, schedule.nchunks, ranks, rank, schedule.root);
    Gpu& gpu = program.gpus.emplace_back(Gpu{rank, counts.input, counts.output, 0, {}});
    Writer(blocks[rank], connections.all, channels, rotation).write(gpu);
  }
  return program;
}

}  // namespace tuccl::lowering
