// LL: every 8 bytes are 4 of data and a flag of 4, so that data shows by itself that it is there.
#pragma once
#include "cuda/reduce_copy.h"
#include "cuda/work.h"

namespace tuccl::cuda {

/// 16 bytes that are two halves of data and flag; each half is seen whole or not at all.
struct alignas(16) LLLine {
  std::uint32_t data0 = 0;
  std::uint32_t flag0 = 0;
  std::uint32_t data1 = 0;
  std::uint32_t flag1 = 0;
};
inline constexpr std::int64_t kLLData = 8;  // bytes of a line

/// Flags have 32 bits. A line that no transfer writes would still have the flag of 2^32 slots ago;
/// so the senders write every line of every slot once in so many slots.
inline constexpr std::uint64_t kCleanEvery = std::uint64_t{1} << 28;

TUCCL_DEVICE std::uint32_t ll_flag(std::uint64_t step) {
  return static_cast<std::uint32_t>(step + 1);
}

template <class Thread>
TUCCL_DEVICE bool wait_for_line(Thread& thread, const LLLine* at, std::uint64_t step, Pack& out) {
  const std::uint32_t flag = ll_flag(step);
  LLLine line;
  const bool there = thread.wait(Wait::kData, step, [&] {
    line = thread.load_line(at);
    return line.flag0 == flag && line.flag1 == flag;
  });
  out.words[0] = std::uint64_t{line.data1} << 32 | line.data0;
  return there;
}

TUCCL_DEVICE LLLine ll_line(std::uint64_t word, std::uint64_t step) {
  return {static_cast<std::uint32_t>(word), ll_flag(step), static_cast<std::uint32_t>(word >> 32),
          ll_flag(step)};
}

TUCCL_DEVICE std::int64_t words_of(std::int64_t bytes) { return (bytes + kLLData - 1) / kLLData; }

/// The lines that a transfer from slot `step` on writes: now and then all of its slots.
TUCCL_DEVICE std::int64_t written_lines(const Move& m, std::uint64_t step) {
  if (step % kCleanEvery >= kSlots) return words_of(m.bytes);
  return m.work.transfer_slots * m.work.stride / static_cast<std::int64_t>(sizeof(LLLine));
}

/// The threads' part between the waits for credit and its return; false in one that gives up.
template <class Thread>
TUCCL_DEVICE bool move_words(Thread& thread, const Move& m, const Steps& steps) {
  const Work& w = m.work;
  const bool sending = sends(m.transfer.op), receiving = receives(m.transfer.op);
  const std::byte* src = w.at(m.transfer.src, m.pass);
  std::byte* dst = w.at(m.transfer.dst, m.pass);
  auto* out = reinterpret_cast<LLLine*>(w.slot(m.block.send, steps.sent));
  auto* in = reinterpret_cast<const LLLine*>(w.slot(m.block.receive, steps.received));
  const std::int64_t words = words_of(m.bytes);
  for (std::int64_t i = thread.index(); i < words; i += thread.count()) {
    const std::int64_t left = m.bytes - i * kLLData;
    Pack value, arrived;
    if (src) value.words[0] = load_word(src + i * kLLData, left, w.width);
    if (receiving) {
      if (!wait_for_line(thread, in + i, steps.received, arrived)) return false;
      if (src)
        combine<1>(w, &value, &arrived);
      else
        value = arrived;
    }
    if (dst) store_word(dst + i * kLLData, value.words[0], left, w.width);
    if (sending) thread.store_line(out + i, ll_line(value.words[0], steps.sent));
  }
  if (!sending) return true;
  const std::int64_t lines = written_lines(m, steps.sent);
  for (std::int64_t i = words + thread.index(); i < lines; i += thread.count())
    thread.store_line(out + i, ll_line(0, steps.sent));
  return true;
}

/// What LL and LL128 share: credit before, its return after.
template <class Thread, class Body>
TUCCL_DEVICE bool move_flagged(Thread& thread, const Move& m, Steps& steps, Body body) {
  const auto slots = static_cast<std::uint64_t>(m.work.transfer_slots);
  bool ready = m.ready;
  if (thread.index() == 0 && ready && sends(m.transfer.op))
    ready = wait_for_credit(thread, m.block.send, steps, slots);
  if (!thread.all(ready)) return false;
  if (!thread.all(body())) return false;
  if (sends(m.transfer.op)) steps.sent += slots;
  if (receives(m.transfer.op)) {
    steps.received += slots;
    if (thread.index() == 0) thread.store_after_loads(m.block.receive.head, steps.received);
  }
  return true;
}

template <class Thread>
TUCCL_DEVICE bool move_ll(Thread& thread, const Move& m, Steps& steps) {
  const std::uint64_t first = steps.sent;
  if (!move_flagged(thread, m, steps, [&] { return move_words(thread, m, steps); })) return false;
  if (sends(m.transfer.op) && m.block.send.posted && thread.index() == 0)
    post(thread, m.block.send, first, steps.sent - first,
         written_lines(m, first) * static_cast<std::int64_t>(sizeof(LLLine)));
  return true;
}

}  // namespace tuccl::cuda
