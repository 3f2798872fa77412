// LL128: lines of 128 bytes, 120 of data and a flag of 8. Eight threads of a warp store a line at
// once; GPUs let no one see a part of it.
#pragma once
#include "cuda/ll.h"

namespace tuccl::cuda {

inline constexpr int kLineLanes = 8;

TUCCL_DEVICE std::uint64_t ll128_flag(std::uint64_t step) { return step + 1; }

template <class Thread>
TUCCL_DEVICE bool move_lines(Thread& thread, const Move& m, const Steps& steps) {
  const Work& w = m.work;
  const bool sending = sends(m.transfer.op), receiving = receives(m.transfer.op);
  constexpr int kLanes = Thread::kLanes;
  constexpr std::int64_t kLineBytes = kLanes * kPackBytes, kLineData = kLineBytes - 8;
  const int lane = thread.index() % kLanes;
  const std::byte* src = w.at(m.transfer.src, m.pass);
  std::byte* dst = w.at(m.transfer.dst, m.pass);
  std::byte* out = w.slot(m.block.send, steps.sent);
  const std::byte* in = w.slot(m.block.receive, steps.received);
  const std::int64_t lines = (m.bytes + kLineData - 1) / kLineData;
  const std::int64_t of_lane = lane * kPackBytes;
  const bool has_flag = lane == kLanes - 1;
  // All threads of a warp go round as often as its first line does: they load and store together.
  for (std::int64_t line = thread.index() / kLanes; line - line % (Thread::kWarp / kLanes) < lines;
       line += thread.count() / kLanes) {
    const bool within = line < lines;
    const std::int64_t at = line * kLineData + of_lane, packed = line * kLineBytes + of_lane;
    const std::int64_t left = within ? m.bytes - at : 0;
    const std::int64_t second = has_flag ? 0 : left - 8;
    Pack value, arrived;
    if (src && left > 0) value.words[0] = load_word(src + at, left, w.width);
    if (src && second > 0) value.words[1] = load_word(src + at + 8, second, w.width);
    if (receiving) {
      const std::uint64_t flag = ll128_flag(steps.received);
      if (!thread.wait_for_lane(in + packed, flag, steps.received, within, arrived)) return false;
      if (src)
        combine<1>(w, &value, &arrived);
      else
        value = arrived;
    }
    if (dst && left > 0) store_word(dst + at, value.words[0], left, w.width);
    if (dst && second > 0) store_word(dst + at + 8, value.words[1], second, w.width);
    if (has_flag) value.words[1] = ll128_flag(steps.sent);
    if (sending) thread.store_lane(out + packed, value, within);
  }
  return true;
}

template <class Thread>
TUCCL_DEVICE bool move_ll128(Thread& thread, const Move& m, Steps& steps) {
  return move_flagged(thread, m, steps, [&] { return move_lines(thread, m, steps); });
}

}  // namespace tuccl::cuda
