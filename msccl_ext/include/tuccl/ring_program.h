// NCCL's ring as a program.
#pragma once
#include <vector>

#include "tuccl/program.h"

namespace tuccl {

/// Each channel sends its part of the data round its own order of ranks; in a broadcast or reduce
/// along a line, from the root or to it. A rank's messages of a channel are one thread block, and
/// each of its own copies is another. Throws InputError where NCCL has no ring for the collective,
/// or an order is none of all ranks.
Program ring_program(Collective collective, const std::vector<std::vector<int>>& orders, int root);

}  // namespace tuccl
