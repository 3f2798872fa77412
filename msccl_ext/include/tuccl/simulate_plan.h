#pragma once
#include <cstdint>
#include <vector>

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

/// A call of a verified plan by some ranks of a network, beside other calls on it.
struct PlanGroupCall {
  const ExecutionPlan* plan = nullptr;
  std::vector<int> members;  ///< The network's rank for each of the plan's.
  std::int64_t nbytes = 0;   ///< The whole array.
  double start_us = 0;
  bool repeats = false;  ///< Begins again whenever it ends.
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

/// Runs calls of groups at the same time, each a communicator of its own: with proxies of its own
/// on its ranks, which share GPUs, adapters and links with those of the others. Calls that differ
/// in pieces or start, or repeat, are walked whole; a call that repeats begins when all of its
/// ranks have ended. Times are from time 0, of one that repeats the mean of its turns but the
/// first.
///
/// Throws InputError as `simulate_plan`, and where all calls repeat.
std::vector<SimResult> simulate_plans(const std::vector<PlanGroupCall>&, const Network& network,
                                      const MachineClass& machine, Launch launch, int process_gpus);

/// Runs calls of programs and of plans at the same time, each by the costs of what runs it; beside
/// each other both are walked whole. Times of calls are those of programs, then those of plans; the
/// use of resources is known where there are programs.
GroupsResult simulate_groups(const std::vector<GroupCall>& programs,
                             const std::vector<PlanGroupCall>& plans, const Network& network,
                             const MachineClass& of_programs, const MachineClass& of_plans,
                             const SimOptions& options);

}  // namespace tuccl
