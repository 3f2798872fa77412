#include "sim/plan_calls.h"

#include <algorithm>
#include <cmath>
#include <string>

#include "plan/checks.h"
#include "tuccl/error.h"

namespace tuccl::sim {
namespace {

constexpr double kElement = 16;  // bytes that a thread moves at once

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

void check_resident(const std::vector<int>& on_rank, const MachineClass& machine) {
  const auto most = std::max_element(on_rank.begin(), on_rank.end());
  if (machine.sm_count > 0 && *most > machine.sm_count)
    throw InputError("gpu " + std::to_string(most - on_rank.begin()) + ": " +
                     std::to_string(*most) +
                     " thread blocks of all calls cannot be co-resident on the " +
                     std::to_string(machine.sm_count) + " SMs of class '" + machine.name +
                     "'; use fewer channels or instances");
}

PlanCalls::PlanCalls(const std::vector<PlanGroupCall>& calls, const Network& network,
                     const MachineClass& machine, Launch launch, int process_gpus)
    : calls_(calls), machine_(machine), launch_(launch), process_gpus_(process_gpus) {
  check(machine);
  kernels_.reserve(calls.size());  // that prices point to
  for (const PlanGroupCall& call : calls) {
    const plan::Kernels& kernels = kernels_.emplace_back(sound_kernels(*call.plan));
    check(kernels, call, network);
    priced_.push_back(price(kernels, *call.plan, call.members, network, machine));
    pieces_.push_back(most_pieces(kernels, static_cast<double>(call.nbytes) / kernels.nchunks));
  }
}

void PlanCalls::add_blocks(std::vector<int>& on_rank) const {
  for (std::size_t i = 0; i < calls_.size(); ++i)
    for (std::size_t rank = 0; rank < kernels_[i].ranks.size(); ++rank)
      on_rank[calls_[i].members[rank]] += static_cast<int>(kernels_[i].ranks[rank].blocks.size());
}

void PlanCalls::join(Links& all) const {
  std::vector<bool> used(all.capacity.size(), false);
  for (const Bundle& bundle : all.bundles)
    for (const int id : all.resources(bundle)) used[id] = true;
  for (const PricedPlan& priced : priced_) {
    const Links& own = priced.links;
    for (const Bundle& bundle : own.bundles)
      for (const int id : own.resources(bundle)) {
        all.capacity[id] =
            used[id] ? std::min(all.capacity[id], own.capacity[id]) : own.capacity[id];
        used[id] = true;
      }
    all.bundles.insert(all.bundles.end(), own.bundles.begin(), own.bundles.end());
  }
}

void PlanCalls::attach(Clock& clock, int first_bundle, int first_owner, bool again) {
  first_owner_ = first_owner;
  const double start_us = machine_.start_us_of(launch_);
  for (std::size_t i = 0; i < calls_.size(); ++i) {
    const PlanGroupCall& call = calls_[i];
    const PlanTurns turns{call.start_us, start_us, result(i, 0).host_us, call.repeats, again};
    runs_.emplace_back(priced_[i], static_cast<double>(call.nbytes) / kernels_[i].nchunks, machine_,
                       turns, clock, first_bundle, first_owner + static_cast<int>(run_of_.size()));
    run_of_.insert(run_of_.end(), static_cast<std::size_t>(runs_.back().owners()),
                   static_cast<int>(i));
    first_bundle += static_cast<int>(priced_[i].links.bundles.size());
  }
}

void PlanCalls::begin(std::int64_t most_pieces) {
  for (PlanRun& run : runs_) run.begin(most_pieces);
}

bool PlanCalls::is_open() const {
  return std::any_of(runs_.begin(), runs_.end(), [](const PlanRun& run) { return run.is_open(); });
}

void PlanCalls::refuse_stuck() const {
  std::find_if(runs_.begin(), runs_.end(), [](const PlanRun& run) {
    return run.is_open();
  })->refuse_stuck();
}

bool PlanCalls::repeats() const {
  return std::any_of(calls_.begin(), calls_.end(),
                     [](const PlanGroupCall& call) { return call.repeats; });
}

std::int64_t PlanCalls::common_pieces() const {
  for (std::size_t i = 0; i < calls_.size(); ++i)
    if (pieces_[i] != pieces_[0] || calls_[i].start_us != calls_[0].start_us || calls_[i].repeats)
      return 0;
  return pieces_[0];
}

std::vector<double> PlanCalls::times_us() const {
  std::vector<double> out;
  for (const PlanRun& run : runs_) out.push_back(run.time_us());
  return out;
}

SimResult PlanCalls::result(std::size_t call, double us) const {
  const PlanGroupCall& of = calls_[call];
  const int gpus = process_gpus_ > 0 ? process_gpus_ : static_cast<int>(of.members.size());
  SimResult out;
  out.host_us = machine_.host_us(launch_, gpus, 1);
  out.gpu_us = of.repeats ? us : machine_.start_us_of(launch_) + us;
  out.time_us = of.repeats ? us : std::max(of.start_us + out.host_us, out.gpu_us);
  if (call < runs_.size()) out.events = runs_[call].events();
  return out;
}

}  // namespace tuccl::sim
