#include "tuccl/simulate_plan.h"

#include <algorithm>
#include <cmath>
#include <functional>
#include <numeric>
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

void check(const plan::Kernels& kernels, const PlanGroupCall& call, const Network& network) {
  const int ranks = static_cast<int>(kernels.ranks.size());
  std::vector<int> sorted = call.members;
  std::sort(sorted.begin(), sorted.end());
  const bool inside = !sorted.empty() && sorted.front() >= 0 && sorted.back() < network.ranks();
  if (!inside || std::adjacent_find(sorted.begin(), sorted.end()) != sorted.end() ||
      static_cast<int>(sorted.size()) != ranks)
    throw InputError("the plan is for " + std::to_string(ranks) +
                     " gpus; expected as many members, each once and from 0 to " +
                     std::to_string(network.ranks() - 1));
  if (call.nbytes < 1 || call.nbytes % kernels.nchunks != 0)
    throw InputError("size " + std::to_string(call.nbytes) +
                     " bytes: expected a multiple of the plan's " +
                     std::to_string(kernels.nchunks) + " chunks");
  if (!(call.start_us >= 0) || !std::isfinite(call.start_us))
    throw InputError("start_us: expected 0 or more");
}

/// Throws InputError where the thread blocks of all calls cannot be on a GPU at once.
void check_resident(const std::vector<plan::Kernels>& kernels,
                    const std::vector<PlanGroupCall>& calls, int ranks,
                    const MachineClass& machine) {
  std::vector<int> blocks(static_cast<std::size_t>(ranks), 0);
  for (std::size_t i = 0; i < calls.size(); ++i)
    for (std::size_t rank = 0; rank < kernels[i].ranks.size(); ++rank)
      blocks[calls[i].members[rank]] += static_cast<int>(kernels[i].ranks[rank].blocks.size());
  const int most = *std::max_element(blocks.begin(), blocks.end());
  if (machine.sm_count > 0 && most > machine.sm_count)
    throw InputError(std::to_string(most) + " thread blocks cannot be co-resident on the " +
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

/// The links of the calls and the flows of each. A link of several protocols has the least of their
/// capacities, one that nobody uses the first's.
sim::Links joined(const std::vector<sim::PricedPlan>& priced) {
  sim::Links all{priced.front().links.network, {}, priced.front().links.capacity};
  std::vector<bool> used(all.capacity.size(), false);
  for (const sim::PricedPlan& each : priced) {
    const sim::Links& own = each.links;
    for (const sim::Bundle& bundle : own.bundles)
      for (const int id : own.resources(bundle)) {
        all.capacity[id] =
            used[id] ? std::min(all.capacity[id], own.capacity[id]) : own.capacity[id];
        used[id] = true;
      }
    all.bundles.insert(all.bundles.end(), own.bundles.begin(), own.bundles.end());
  }
  return all;
}

/// Runs calls, each with as many pieces as its plan has or the same number of all; their times
/// (us).
std::vector<double> times(sim::PlanClock& clock, std::vector<sim::PlanRun>& runs,
                          const std::vector<std::int64_t>& pieces) {
  run_together(clock, runs, pieces);
  std::vector<double> out;
  for (const sim::PlanRun& run : runs) out.push_back(run.time_us());
  return out;
}

/// The same, extrapolated from the pace of the first pieces.
std::vector<double> extrapolated(sim::PlanClock& clock, std::vector<sim::PlanRun>& runs,
                                 std::int64_t pieces) {
  const std::vector<std::int64_t> measured(runs.size(), kMeasuredPieces);
  const std::vector<std::int64_t> twice(runs.size(), 2 * kMeasuredPieces);
  const std::vector<double> half = times(clock, runs, measured);
  std::vector<double> out = times(clock, runs, twice);
  for (std::size_t i = 0; i < out.size(); ++i)
    out[i] += (out[i] - half[i]) / static_cast<double>(kMeasuredPieces) *
              static_cast<double>(pieces - 2 * kMeasuredPieces);
  return out;
}

}  // namespace

std::vector<SimResult> simulate_plans(const std::vector<PlanGroupCall>& calls,
                                      const Network& network, const MachineClass& machine,
                                      Launch launch, int process_gpus) {
  check(machine);
  std::vector<plan::Kernels> kernels;
  for (const PlanGroupCall& call : calls) {
    kernels.push_back(sound_kernels(*call.plan));
    check(kernels.back(), call, network);
  }
  check_resident(kernels, calls, network.ranks(), machine);
  const auto repeats = [](const PlanGroupCall& call) { return call.repeats; };
  if (std::all_of(calls.begin(), calls.end(), repeats))
    throw InputError("calls: expected one or more that do not repeat");

  std::vector<sim::PricedPlan> priced;
  for (std::size_t i = 0; i < calls.size(); ++i)
    priced.push_back(sim::price(kernels[i], *calls[i].plan, calls[i].members, network, machine));
  sim::PlanClock clock(joined(priced));
  std::vector<sim::PlanRun> runs;
  std::vector<SimResult> out(calls.size());
  std::vector<std::int64_t> pieces;
  const double start_us = machine.start_us_of(launch);
  const bool again = std::any_of(calls.begin(), calls.end(), repeats);
  int bundles = 0, owners = 0;
  for (std::size_t i = 0; i < calls.size(); ++i) {
    const PlanGroupCall& call = calls[i];
    const int gpus = process_gpus > 0 ? process_gpus : static_cast<int>(call.members.size());
    out[i].host_us = machine.host_us(launch, gpus, 1);
    const double chunk = static_cast<double>(call.nbytes) / kernels[i].nchunks;
    runs.emplace_back(priced[i], chunk, machine,
                      sim::PlanTurns{call.start_us, start_us, out[i].host_us, call.repeats, again},
                      clock, bundles, owners);
    pieces.push_back(most_pieces(kernels[i], chunk));
    bundles += static_cast<int>(priced[i].links.bundles.size());
    owners += runs.back().owners();
  }
  const bool in_step =
      !again &&
      std::all_of(
          calls.begin(), calls.end(),
          [&](const PlanGroupCall& call) { return call.start_us == calls.front().start_us; }) &&
      std::adjacent_find(pieces.begin(), pieces.end(), std::not_equal_to<>()) == pieces.end();
  const bool is_long = in_step && pieces.front() > 2 * kMeasuredPieces;
  const std::vector<double> us =
      is_long ? extrapolated(clock, runs, pieces.front()) : times(clock, runs, pieces);
  for (std::size_t i = 0; i < calls.size(); ++i) {
    SimResult& result = out[i];
    result.extrapolated = is_long;
    result.events = runs[i].events();
    result.gpu_us = calls[i].repeats ? us[i] : start_us + us[i];
    result.time_us =
        calls[i].repeats ? us[i] : std::max(calls[i].start_us + result.host_us, result.gpu_us);
  }
  return out;
}

SimResult simulate_plan(const ExecutionPlan& plan, const PlanSimCall& call, const Network& network,
                        const MachineClass& machine) {
  std::vector<int> members(plan.gpus.size());
  std::iota(members.begin(), members.end(), 0);
  return simulate_plans({{&plan, members, call.nbytes}}, network, machine, call.launch,
                        call.process_gpus)
      .front();
}

}  // namespace tuccl
