// Checks that reroute.cpp and tree_duals.cpp share.
#pragma once
#include <vector>

#include "tuccl/packing.h"

namespace tuccl::packing {

/// Throws InputError where roots are no ranks of the network.
void check_demands(const Network& network, const std::vector<ChunkDemand>& demands);

}  // namespace tuccl::packing
