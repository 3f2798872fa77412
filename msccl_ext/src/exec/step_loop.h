// How the executors walk a thread block's steps: what the simulator and the real runs share.
#pragma once
#include <cstdint>
#include <string>

#include "tuccl/knobs.h"
#include "tuccl/program.h"

namespace tuccl {

/// Steps that one primitive makes of those from `position` on: more than one for `re` steps that
/// the parser fuses (docs/reference/msccl.md).
int fused_steps(const ThreadBlock&, int position);

/// Slots of the FIFO that a transfer takes.
int transfer_slots(const Knobs&, const StepLoop&);

/// Most payload of a chunk in one pass: C of docs/reference/simulator.md.
std::int64_t pass_bytes(const Knobs&, const StepLoop&);

/// Chunks that one transfer may gather: A of docs/reference/simulator.md.
int merged_chunks(std::int64_t slice, std::int64_t chunk);

/// "gpu 3 tb 2 step 5"
std::string step_name(int gpu, int tb, int step);

}  // namespace tuccl
