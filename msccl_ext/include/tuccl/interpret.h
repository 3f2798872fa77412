#pragma once
#include <cstdint>
#include <vector>

#include "tuccl/execute.h"

namespace tuccl {

/// How the interpreter of GPUs is played on a CPU.
struct CpuEmulation {
  int threads = 8;               ///< Of a block, a multiple of 8. The call's knob is not used.
  int cores = 2;                 ///< Threads of the CPU, among which the blocks are dealt out.
  std::uint64_t first_step = 0;  ///< Slots that every connection is taken to have passed.
};

/// Results by rank of `call`, run by the interpreter's own code on this CPU: every thread of every
/// block is a fiber, and gives way at random before it touches what others share. Runs are not
/// timed: `times_us` stays empty. Throws InputError, Stuck if nothing gets on for `timeout_s`,
/// Stopped if `interrupted`, which is asked now and then, says so.
std::vector<RankResult> emulate_gpus(const Call& call, const CpuEmulation& form, double timeout_s,
                                     bool (*interrupted)() = nullptr);

}  // namespace tuccl
