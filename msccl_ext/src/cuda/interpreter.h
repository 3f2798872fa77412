// One thread block of a program: its transfers, slice of every chunk after slice. Who knows NCCL's
// prims_*.h finds them in simple.h, ll.h and ll128.h.
//
// A `Thread` is what a GPU's thread is to a block (gpu_thread.h), or a thread of a test
// (host_thread.h):
//   index(), count()            its place, how many there are
//   block(work, number)         its block's part of the work
//   transfer(block, i)          the i-th transfer of its block; all threads ask for the same one
//   kWarp, kLanes               how many are a warp, and how many share a line of LL128: 8
//   all(ok)                     barrier of the block; true where every thread's `ok` was
//   wait(why, slot, condition)  until `condition`, which loads; false where everyone gives up
//   load(p)                     with acquire, from anywhere
//   store_after_stores(p, v)    with release: what the block stored before its last barrier is seen
//                               first, on other GPUs too
//   store_after_loads(p, v)     what the block loaded before its last barrier was loaded first
//   publish(p, v)               like store_after_stores, within the GPU
//   load_line, store_line       16 bytes of LL
//   wait_for_lanes, store_lane  16 bytes of each thread of a warp, in whole lines of LL128
#pragma once
#include "cuda/ll.h"
#include "cuda/ll128.h"
#include "cuda/simple.h"
#include "cuda/work.h"

namespace tuccl::cuda {

template <Protocol protocol, class Thread>
TUCCL_DEVICE bool move(Thread& thread, const Move& m, Steps& steps) {
  const Op op = m.transfer.op;
  if (!sends(op) && !receives(op)) {
    if (!thread.all(m.ready)) return false;
    Operands o{.src = m.work.at(m.transfer.src, m.pass), .dst = m.work.at(m.transfer.dst, m.pass)};
    if (op == Op::kCopy && o.src == o.dst) return true;  // in place; others may read it now
    if (op == Op::kReduce) o = {.src = o.dst, .in = o.src, .dst = o.dst};
    reduce_copy(thread, m, o, m.bytes);
    return true;
  }
  if constexpr (protocol == Protocol::kLL) return move_ll(thread, m, steps);
  if constexpr (protocol == Protocol::kLL128) return move_ll128(thread, m, steps);
  return move_simple(thread, m, steps);
}

/// Where this call's first transfers begin: transfers that take several slots begin at a multiple.
template <class Thread>
TUCCL_DEVICE Steps first_steps(Thread& thread, const BlockWork& b, int slots) {
  const auto k = static_cast<std::uint64_t>(slots);
  const auto multiple = [k](std::uint64_t step) { return (step + k - 1) / k * k; };
  Steps steps;
  if (b.send.step) steps.sent = multiple(*b.send.step);
  if (!b.receive.step) return steps;
  steps.received = multiple(*b.receive.step);
  // The sender leaves those slots out too, and needs their credit.
  if (thread.index() == 0 && steps.received != *b.receive.step)
    thread.store_after_loads(b.receive.head, steps.received);
  return steps;
}

/// Waits for the step of another block that `t` depends on; all threads but the first just go on.
template <class Thread>
TUCCL_DEVICE bool wait_for_step(Thread& thread, const Work& w, const Transfer& t,
                                std::uint64_t call, std::int64_t pass) {
  if (t.waits_block < 0 || thread.index() != 0) return true;
  const std::uint64_t count =
      static_cast<std::uint64_t>(pass) * static_cast<std::uint64_t>(w.blocks[t.waits_block].steps) +
      static_cast<std::uint64_t>(t.waits_step) + 1;
  return thread.wait(Wait::kStep, count, [&] {
    return thread.load(w.published + t.waits_block) >= (call << 32 | count);
  });
}

/// Runs block number `block` of `w`.
template <Protocol protocol, class Thread>
TUCCL_DEVICE void run_block(Thread& thread, const Work& w, int block) {
  const BlockWork& b = thread.block(w, block);
  const bool first = thread.index() == 0;
  const std::uint64_t call = w.calls[block];
  Steps steps = first_steps(thread, b, w.transfer_slots);
  bool ready = thread.all(true);  // everyone has read what the first thread will change
  for (std::int64_t pass = 0; pass < w.passes; ++pass)
    for (int i = 0; i < b.transfer_count; ++i) {
      const Transfer& t = thread.transfer(b, i);
      thread.set_transfer(i);
      ready = ready && wait_for_step(thread, w, t, call, pass);
      if (t.op == Op::kNop) continue;
      if (!move<protocol>(thread, {w, b, t, pass, t.chunks * w.pass_bytes(pass), ready}, steps))
        return;
      if (!t.publishes) continue;
      if (!sends(t.op) && !receives(t.op)) thread.all(true);
      const auto done = static_cast<std::uint64_t>(pass) * static_cast<std::uint64_t>(b.steps) +
                        static_cast<std::uint64_t>(t.last_step) + 1;
      if (first) thread.publish(w.published + block, call << 32 | done);
    }
  if (!first) return;
  if (b.send.step) *b.send.step = steps.sent;
  if (b.receive.step) *b.receive.step = steps.received;
  w.calls[block] = call + 1;
}

/// The same on a CPU, by a protocol named at run time.
template <class Thread>
void run_block(Protocol protocol, Thread& thread, const Work& work, int block) {
  switch (protocol) {
    case Protocol::kLL:
      return run_block<Protocol::kLL>(thread, work, block);
    case Protocol::kLL128:
      return run_block<Protocol::kLL128>(thread, work, block);
    case Protocol::kSimple:
      break;
  }
  run_block<Protocol::kSimple>(thread, work, block);
}

}  // namespace tuccl::cuda
