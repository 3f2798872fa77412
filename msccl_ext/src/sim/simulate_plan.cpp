#include "tuccl/simulate_plan.h"

#include <algorithm>
#include <cmath>
#include <string>

#include "plan/checks.h"
#include "sim/plan_run.h"
#include "tuccl/error.h"

namespace tuccl {
namespace {

constexpr double kElement = 16;               // bytes that a thread moves at once
constexpr std::int64_t kMeasuredPieces = 48;  // of a pipeline, twice, to know its pace

/// The most pieces of a pipeline in the plan.
std::int64_t most_pieces(const plan::Kernels& kernels, double chunk_bytes) {
  double most = 1;
  for (const auto& rank : kernels.ranks)
    for (const auto& block : rank.blocks)
      for (const plan::DeviceOperation& op : block)
        if (op.kind == plan::DeviceOperation::Kind::kPipeline)
          most = std::max(most, std::ceil(op.chunks * chunk_bytes / (op.unit * kElement)));
  return static_cast<std::int64_t>(most);
}

void check(const plan::Kernels& kernels, const PlanSimCall& call, const Network& network,
           const MachineClass& machine) {
  const int ranks = static_cast<int>(kernels.ranks.size());
  if (ranks > network.ranks())
    throw InputError("the plan is for " + std::to_string(ranks) + " gpus, the network has " +
                     std::to_string(network.ranks()) + " ranks");
  if (call.nbytes < 1 || call.nbytes % kernels.nchunks != 0)
    throw InputError("size " + std::to_string(call.nbytes) +
                     " bytes: expected a multiple of the plan's " +
                     std::to_string(kernels.nchunks) + " chunks");
  for (const auto& rank : kernels.ranks)
    if (machine.sm_count > 0 && static_cast<int>(rank.blocks.size()) > machine.sm_count)
      throw InputError(std::to_string(rank.blocks.size()) +
                       " thread blocks cannot be co-resident on the " +
                       std::to_string(machine.sm_count) + " SMs of class '" + machine.name +
                       "'; use fewer instances");
}

/// The kernels of a plan whose parts are sound.
plan::Kernels sound_kernels(const ExecutionPlan& plan) {
  const plan::PlanIndex index(plan);
  const Program nowhere;
  Findings findings(nowhere);
  plan::check_parts(index, findings);
  if (!findings.ok()) throw InputError("plan: " + findings.take().errors.front().message);
  return plan::kernels_of(index);
}

}  // namespace

SimResult simulate_plan(const ExecutionPlan& plan, const PlanSimCall& call, const Network& network,
                        const MachineClass& machine) {
  const plan::Kernels kernels = sound_kernels(plan);
  check(kernels, call, network, machine);
  check(machine);
  const double chunk = static_cast<double>(call.nbytes) / kernels.nchunks;
  const sim::PricedPlan priced = sim::price(kernels, plan, network, machine);
  sim::PlanRun run(priced, chunk, machine);
  const std::int64_t pieces = most_pieces(kernels, chunk);
  SimResult result;
  double time = 0;
  if (pieces <= 2 * kMeasuredPieces) {
    time = run.execute(pieces);
  } else {
    const double half = run.execute(kMeasuredPieces);
    time = run.execute(2 * kMeasuredPieces);
    time += (time - half) / static_cast<double>(kMeasuredPieces) *
            static_cast<double>(pieces - 2 * kMeasuredPieces);
    result.extrapolated = true;
  }
  const int gpus = call.process_gpus > 0 ? call.process_gpus : network.ranks();
  result.host_us = machine.host_us(call.launch, gpus, 1);
  result.gpu_us = machine.start_us_of(call.launch) + time;
  result.time_us = std::max(result.host_us, result.gpu_us);
  result.events = run.events();
  return result;
}

}  // namespace tuccl
