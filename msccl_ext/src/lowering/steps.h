// Steps of a program from thread blocks: numbering, nops, flags, what is left of scratch.
#pragma once
#include "lowering/blocks.h"

namespace tuccl::lowering {

/// The program of the thread blocks; channels are renumbered in their order.
Program program_of(const Schedule& schedule, const Connections& connections, Blocks blocks);

}  // namespace tuccl::lowering
