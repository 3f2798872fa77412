#include "lowering/cells.h"

#include <algorithm>
#include <tuple>

namespace tuccl::lowering {
namespace {

/// More than any program may have: of scratch in chunks, of channels and of ranks.
constexpr int kMostScratch = 1 << 20;
constexpr int kMostChannels = 1 << 12;
constexpr int kMostRanks = 8192;  // as in a simulated network

}  // namespace

std::array<std::int64_t, 3> buffer_sizes(const Schedule& schedule, int rank) {
  const int ranks = schedule.groups.ranks(schedule.ranks);
  const ChunkCounts counts =
      chunk_counts(schedule.collective, schedule.nchunks, ranks, rank, schedule.root);
  return {counts.input, counts.output, schedule.scratch[rank]};
}

void end_below_period(Schedule& schedule) {
  const Rotation rotation = schedule.rotation();
  for (Transfer& t : schedule.transfers) {
    const int by = rotation.beyond(t.dst);
    if (by == 0 || std::min(t.src, t.dst) < 0 || std::max(t.src, t.dst) >= schedule.ranks) continue;
    std::tie(t.src, t.dst) = rotation.first(t.src, t.dst);
    for (Address* at : {&t.src_at, &t.dst_at, &t.operand})
      at->offset = rotation.chunk(at->buffer, at->offset, -by);
  }
}

std::string misfit_of(const Schedule& schedule) {
  const auto& scratch = schedule.scratch;
  if (schedule.ranks < 1 || schedule.ranks > kMostRanks)
    return std::to_string(schedule.ranks) + " ranks: expected 1 to " + std::to_string(kMostRanks);
  if (schedule.groups.stride < 1)
    return "groups of ranks " + std::to_string(schedule.groups.stride) +
           " apart: expected 1 or more";
  const bool periodic = schedule.period != 0;
  if (periodic &&
      (schedule.groups.size != 0 ||
       !is_legal_period(schedule.collective, schedule.nchunks, schedule.ranks, schedule.period)))
    return "a period of " + std::to_string(schedule.period) + ": expected a divisor of " +
           std::to_string(schedule.ranks) + " ranks that are one group and have no root";
  if (static_cast<int>(scratch.size()) != schedule.written())
    return "scratch of " + std::to_string(scratch.size()) + " ranks: expected " +
           std::to_string(schedule.written());
  for (const int chunks : scratch)
    if (chunks < 0 || chunks > kMostScratch)
      return std::to_string(chunks) + " chunks of scratch: expected at most " +
             std::to_string(kMostScratch);
  const Rotation rotation = schedule.rotation();
  const auto inside = [&](int rank, Address at, int count) {
    const std::int64_t size = buffer_sizes(schedule, rank)[static_cast<int>(at.buffer)];
    return 0 <= at.offset && at.offset <= size - count &&
           rotation.keeps(at.buffer, at.offset, count);
  };
  for (std::size_t n = 0; n < schedule.transfers.size(); ++n) {
    const Transfer& t = schedule.transfers[n];
    const bool ranked =
        std::min(t.src, t.dst) >= 0 && t.src < schedule.ranks && t.dst < schedule.written();
    if (!ranked || t.count < 1 || t.channel < 0 || t.channel >= kMostChannels ||
        !inside(t.src - rotation.beyond(t.src), t.src_at, t.count) ||
        !inside(t.dst, t.dst_at, t.count) || (t.reduce && !inside(t.dst, t.operand, t.count)))
      return "transfer " + std::to_string(n) + " (" + std::to_string(t.src) + " to " +
             std::to_string(t.dst) + "): outside the ranks, their buffers or the channels";
  }
  return "";
}

}  // namespace tuccl::lowering
