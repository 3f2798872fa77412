// Which addresses of a rank's buffers are the same memory.
#pragma once
#include "tuccl/program.h"

namespace tuccl::sim {

/// Whether `copy` of `gpu` reads and writes the same memory, where `in_place`
/// makes the user buffers alias as NCCL's in-place calls do.
bool same_memory(const Program& program, int gpu, const Step& copy, bool in_place);

}  // namespace tuccl::sim
