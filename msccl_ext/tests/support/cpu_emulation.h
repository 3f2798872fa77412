#pragma once
#include <vector>

#include "tuccl/execute.h"

namespace tuccl {

/// How the interpreter of GPUs is played on a CPU.
struct CpuEmulation {
  int threads = 8;  ///< Of a block, a multiple of 8. The call's knob is not used.
  int cores = 2;    ///< Threads of the CPU at least, among which the ranks are dealt out.
};

/// Results by rank of `call`, run by communicators on this CPU with the interpreter's own code:
/// every thread of every block is a fiber, and gives way at random before it touches what others
/// share. Times are of fibers, nobody's GPU takes them. Throws InputError, Stuck if nothing gets on
/// for `timeout_s`.
std::vector<RankResult> emulate_gpus(const Call& call, const CpuEmulation& emulation,
                                     double timeout_s);

}  // namespace tuccl
