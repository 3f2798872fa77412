// LL128: lines of 128 bytes, 120 of data and a flag of 8. Eight threads of a warp store a line at
// once; GPUs let no one see a part of it.
#pragma once
#include "cuda/ll.h"

namespace tuccl::cuda {

inline constexpr int kLineLanes = 8;

TUCCL_DEVICE std::uint64_t ll128_flag(std::uint64_t step) { return step + 1; }

/// Where a thread's part of the lines of a transfer lies; null for what it does not do.
struct Lanes {
  const std::byte* src;
  std::byte* dst;
  std::byte* out;
  const std::byte* in;
};

/// Moves `count` lines, `apart` from one to the next, of which `line` is the first; several are
/// whole ones.
template <int count, class Thread>
TUCCL_DEVICE bool move_lines(Thread& thread, const Move& m, const Steps& steps, const Lanes& lanes,
                             std::int64_t line, std::int64_t apart, bool within) {
  constexpr int kLanes = Thread::kLanes;
  constexpr std::int64_t kLineBytes = kLanes * kPackBytes, kLineData = kLineBytes - 8;
  const Work& w = m.work;
  const int lane = thread.index() % kLanes;
  const bool has_flag = lane == kLanes - 1;
  const std::int64_t of_lane = lane * kPackBytes, packed = line * kLineBytes + of_lane;
  Pack values[count], arrived[count];
  const auto at = [&](int i) { return (line + i * apart) * kLineData + of_lane; };
  const auto left = [&](int i) {
    if constexpr (count > 1) return kLineBytes;
    return within ? m.bytes - at(i) : 0;
  };
  TUCCL_UNROLL
  for (int i = 0; i < count && lanes.src; ++i) {
    if (left(i) > 0) values[i].words[0] = load_word(lanes.src + at(i), left(i), w.width);
    if (left(i) > 8 && !has_flag)
      values[i].words[1] = load_word(lanes.src + at(i) + 8, left(i) - 8, w.width);
  }
  if (receives(m.transfer.op)) {
    if (!thread.template wait_for_lanes<count>(lanes.in + packed, apart * kLineBytes,
                                               ll128_flag(steps.received), steps.received, within,
                                               arrived))
      return false;
    if (lanes.src) combine<count>(w, values, arrived);
    TUCCL_UNROLL
    for (int i = 0; i < count && !lanes.src; ++i) values[i] = arrived[i];
  }
  TUCCL_UNROLL
  for (int i = 0; i < count; ++i) {
    if (lanes.dst && left(i) > 0)
      store_word(lanes.dst + at(i), values[i].words[0], left(i), w.width);
    if (lanes.dst && left(i) > 8 && !has_flag)
      store_word(lanes.dst + at(i) + 8, values[i].words[1], left(i) - 8, w.width);
    if (has_flag) values[i].words[1] = ll128_flag(steps.sent);
    if (sends(m.transfer.op))
      thread.store_lane(lanes.out + packed + i * apart * kLineBytes, values[i], within);
  }
  return true;
}

template <class Thread>
TUCCL_DEVICE bool move_lines(Thread& thread, const Move& m, const Steps& steps) {
  constexpr int kLanes = Thread::kLanes, kWarpLines = Thread::kWarp / kLanes;
  constexpr std::int64_t kLineData = kLanes * kPackBytes - 8;
  const Lanes lanes{.src = m.work.at(m.transfer.src, m.pass),
                    .dst = m.work.at(m.transfer.dst, m.pass),
                    .out = m.work.slot(m.block.send, steps.sent),
                    .in = m.work.slot(m.block.receive, steps.received)};
  const std::int64_t whole = m.bytes / kLineData, lines = (m.bytes + kLineData - 1) / kLineData;
  const std::int64_t apart = thread.count() / kLanes;
  std::int64_t line = thread.index() / kLanes;
  // All threads of a warp go round as often as its first line does: they load and store together.
  const auto first = [&] { return line - line % kWarpLines; };
  for (; first() + kWarpLines + (kUnroll - 1) * apart <= whole; line += kUnroll * apart)
    if (!move_lines<kUnroll>(thread, m, steps, lanes, line, apart, true)) return false;
  for (; first() < lines; line += apart)
    if (!move_lines<1>(thread, m, steps, lanes, line, apart, line < lines)) return false;
  return true;
}

template <class Thread>
TUCCL_DEVICE bool move_ll128(Thread& thread, const Move& m, Steps& steps) {
  return move_flagged(thread, m, steps, [&] { return move_lines(thread, m, steps); });
}

}  // namespace tuccl::cuda
