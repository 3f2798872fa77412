// Simple: data in slots, then the count of filled slots; two slices a transfer.
#pragma once
#include "cuda/reduce_copy.h"
#include "cuda/work.h"

namespace tuccl::cuda {

/// The bytes of the first of two slices: half, unless one holds all (exec::Engine cuts alike).
TUCCL_DEVICE std::int64_t first_slice(std::int64_t bytes, std::int64_t least) {
  constexpr std::int64_t kAlignment = 64;
  const std::int64_t half = (bytes / 2 + kAlignment - 1) / kAlignment * kAlignment;
  const std::int64_t first = half > least ? half : least;
  return first < bytes ? first : bytes;
}

/// Moves a slice that begins at byte `at`; `slots` of the FIFO are its own, so it lies where they
/// do, however short the slice before it was. False where the thread has given up.
template <class Thread>
TUCCL_DEVICE bool move_slice(Thread& thread, const Move& m, std::int64_t at, std::int64_t bytes,
                             int slots, Steps& steps) {
  const bool sending = sends(m.transfer.op), receiving = receives(m.transfer.op);
  const Connection& to = m.block.send;
  const Connection& from = m.block.receive;
  const auto passed = static_cast<std::uint64_t>(slots);
  bool ready = m.ready;
  if (thread.index() == 0 && ready) {
    if (sending) ready = wait_for_credit(thread, to, steps, passed);
    if (receiving && ready)
      ready = thread.wait(Wait::kData, steps.received,
                          [&] { return thread.load(from.tail) >= steps.received + passed; });
  }
  if (!thread.all(ready)) return false;
  const auto after = [at](std::byte* p) { return p ? p + at : nullptr; };
  const Operands o{.src = after(m.work.at(m.transfer.src, m.pass)),
                   .in = receiving ? m.work.slot(from, steps.received) : nullptr,
                   .dst = after(m.work.at(m.transfer.dst, m.pass)),
                   .out = sending ? m.work.slot(to, steps.sent) : nullptr};
  reduce_copy(thread, m, o, bytes);
  thread.all(true);
  if (sending) {
    if (thread.index() == 0) post(thread, to, steps.sent, passed, bytes);
    steps.sent += passed;
  }
  if (receiving) {
    steps.received += passed;
    if (thread.index() == 0) thread.store_after_loads(from.head, steps.received);
  }
  return true;
}

template <class Thread>
TUCCL_DEVICE bool move_simple(Thread& thread, const Move& m, Steps& steps) {
  const int slots = m.work.transfer_slots, half = slots / 2;
  const std::int64_t first = half > 0 ? first_slice(m.bytes, m.work.least_part) : m.bytes;
  if (first == m.bytes) return move_slice(thread, m, 0, first, slots, steps);
  return move_slice(thread, m, 0, first, half, steps) &&
         move_slice(thread, m, first, m.bytes - first, slots - half, steps);
}

}  // namespace tuccl::cuda
