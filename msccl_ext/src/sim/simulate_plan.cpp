#include "tuccl/simulate_plan.h"

#include <algorithm>
#include <limits>
#include <numeric>
#include <string>

#include "sim/plan_calls.h"
#include "tuccl/error.h"

namespace tuccl {
namespace {

constexpr std::int64_t kMeasuredPieces = 48;  // of a pipeline, twice, to know its pace
constexpr double kSameMoment = 1 + 1e-12;     // keeps symmetric plans in step

/// Times (us) of calls with at most so many pieces of each pipeline.
std::vector<double> times(sim::Clock& clock, sim::PlanCalls& calls, std::int64_t most_pieces) {
  clock.reset();
  calls.begin(most_pieces);
  while (calls.is_open()) {
    const double now = clock.next();
    if (now == kUnlimited) calls.refuse_stuck();
    const double moment = now * kSameMoment;
    while (true) {
      if (clock.sharing.next_end() <= moment)
        calls.ended(now, clock.sharing.end_next(now));
      else if (clock.is_due(moment))
        calls.open(now, clock.pop());
      else
        break;
    }
    clock.sharing.update_rates(now);
  }
  return calls.times_us();
}

/// The same with all `pieces`, from the pace of the first.
std::vector<double> times_at_pace(sim::Clock& clock, sim::PlanCalls& calls, std::int64_t pieces) {
  const std::vector<double> half = times(clock, calls, kMeasuredPieces);
  std::vector<double> out = times(clock, calls, 2 * kMeasuredPieces);
  for (std::size_t i = 0; i < out.size(); ++i)
    out[i] += (out[i] - half[i]) / static_cast<double>(kMeasuredPieces) *
              static_cast<double>(pieces - 2 * kMeasuredPieces);
  return out;
}

}  // namespace

std::vector<SimResult> simulate_plans(const std::vector<PlanGroupCall>& calls,
                                      const Network& network, const MachineClass& machine,
                                      Launch launch, int process_gpus) {
  if (std::all_of(calls.begin(), calls.end(), [](const PlanGroupCall& c) { return c.repeats; }))
    throw InputError("calls: expected one or more that do not repeat");
  sim::PlanCalls together(calls, network, machine, launch, process_gpus);
  std::vector<int> on_rank(static_cast<std::size_t>(network.ranks()), 0);
  together.add_blocks(on_rank);
  sim::check_resident(on_rank, machine);
  sim::Links links = sim::links_of(network, machine, machine.simple);
  together.join(links);
  sim::Clock clock(links);
  together.attach(clock, 0, 0, together.repeats());
  const std::int64_t pieces = together.common_pieces();
  const bool is_long = pieces > 2 * kMeasuredPieces;
  const std::vector<double> us =
      is_long ? times_at_pace(clock, together, pieces)
              : times(clock, together, std::numeric_limits<std::int64_t>::max());
  std::vector<SimResult> out;
  for (std::size_t i = 0; i < calls.size(); ++i) {
    out.push_back(together.result(i, us[i]));
    out.back().extrapolated = is_long;
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
