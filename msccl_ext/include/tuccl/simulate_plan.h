#pragma once
#include <cstdint>

#include "tuccl/execution_plan.h"
#include "tuccl/machine.h"
#include "tuccl/network.h"
#include "tuccl/simulate.h"

namespace tuccl {

/// One call of an MSCCL++ plan.
struct PlanSimCall {
  std::int64_t nbytes = 0;  ///< The whole array.
  Launch launch = Launch::kGraph;
  int process_gpus = 0;  ///< As in SimOptions.
};

/// Runs one call of a verified plan in virtual time. Long pipelines are extrapolated from the pace
/// of their first pieces. The machine class is one of MSCCL++'s (topology/machines/mscclpp_*.json):
/// what its constants mean here is in docs/reference/simulator.md. Switch channels need the network
/// of `nvls_network`.
///
/// Throws InputError: parts that are not sound, ranks that do not match, a missing route, a size
/// that the chunks do not divide, thread blocks that cannot be co-resident, blocks that wait for
/// what never comes.
SimResult simulate_plan(const ExecutionPlan&, const PlanSimCall& call, const Network& network,
                        const MachineClass& machine);

}  // namespace tuccl
