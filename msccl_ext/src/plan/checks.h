#pragma once
// Faults of a plan that need no proof of its order.
#include "plan/index.h"
#include "verify/report.h"

namespace tuccl::plan {

/// Limits, ids, connections, and, where these are sound, each thread block and its operations.
void check_parts(const PlanIndex&, Findings&);

/// Lists and operations of the blocks of a GPU whose connections are sound.
void check_blocks(const PlanIndex&, const GpuIndex&, Findings&);

/// Chunks, bounds, ranges and sizes of a plan whose parts are sound.
void check_sizes(const PlanIndex&, Findings&);

}  // namespace tuccl::plan
