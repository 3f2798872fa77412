#include "tuccl/simulate.h"

#include <algorithm>
#include <cmath>
#include <string>

#include "sim_plan.h"
#include "sim_run.h"
#include "tuccl/error.h"
#include "walk.h"

namespace tuccl {
namespace {

constexpr std::int64_t kMostBytes = std::int64_t{1} << 50;

/// Paces (us a pass) that differ by less are equal.
constexpr double kSteady = 1e-4;
constexpr std::int64_t kFirstPasses = 3;
/// Events spent on looking for steady state, and on a whole walk where there
/// is none: some programs' thread blocks never fall into step.
constexpr std::int64_t kSearchEvents = 400'000;
constexpr std::int64_t kMostEvents = 2'500'000;

void check_call(const Program& p, const Knobs& k, const Network& n, std::int64_t nbytes) {
  if (const auto why = illegal(k)) throw InputError("knobs: " + *why);
  if (p.ngpus != n.ranks() || static_cast<int>(p.gpus.size()) != p.ngpus)
    throw InputError("program '" + p.name.substr(0, 60) + "' is for " +
                     std::to_string(p.gpus.size()) + " gpus, the network has " +
                     std::to_string(n.ranks()) + " ranks");
  if (p.nchunks < 1)
    throw InputError("program '" + p.name.substr(0, 60) + "' cuts the buffer into " +
                     std::to_string(p.nchunks) + " chunks, expected 1 or more");
  if (nbytes < 1 || nbytes > kMostBytes)
    throw InputError("size " + std::to_string(nbytes) + ": expected 1 to " +
                     std::to_string(kMostBytes) + " bytes");
  if (nbytes % p.nchunks != 0)
    throw InputError("size " + std::to_string(nbytes) +
                     " bytes: expected a multiple of the program's " + std::to_string(p.nchunks) +
                     " chunks, the runtime runs no other");
}

void check_walk(const Walk& walk) {
  if (walk.pass_bytes < 0 || walk.pass_bytes > kMostBytes)
    throw InputError("walk: pass_bytes is " + std::to_string(walk.pass_bytes) +
                     ", expected 0 (the protocol's) or more");
  if (walk.transfer_slots < 0 || walk.transfer_slots > 8 || 8 % std::max(walk.transfer_slots, 1))
    throw InputError("walk: transfer_slots is " + std::to_string(walk.transfer_slots) +
                     ", expected 0 (the protocol's), 1, 2, 4 or 8");
}

class Simulation {
 public:
  Simulation(const sim::Plan& plan, const sim::Passes& passes)
      : plan_(plan), passes_(passes), run_(plan) {}

  sim::Outcome whole() { return walk(passes_.full); }

  /// Time grows linearly with the number of passes once the pipeline is full,
  /// its filling and draining being the same for any number: so runs with few
  /// passes (and the same last, partial one) tell how long many take. The pace
  /// is taken as steady when it was the same over doubled lengths: twice where
  /// it is that of the busiest part, which nothing can beat, else thrice (a
  /// pipeline that is still filling can look steady for a while).
  sim::Outcome extrapolated() {
    std::int64_t n = kFirstPasses;
    if (passes_.full <= 4 * n) return whole();
    const double bound = sim::least_pace(plan_, passes_.slice);
    sim::Outcome before = walk(n);
    sim::Outcome last = walk(2 * n);
    double pace = pace_of(before, last, n);
    for (int agreed = 1; events < kSearchEvents; pace = pace_of(before, last, n)) {
      n *= 2;
      if (passes_.full <= 3 * n) return whole();
      before = std::move(last);
      last = walk(2 * n);
      const double now = pace_of(before, last, n);
      agreed = std::abs(now - pace) <= kSteady * now ? agreed + 1 : 1;
      const bool least = now <= bound * (1 + kSteady);
      if (now >= bound * (1 - kSteady) && agreed >= (least ? 2 : 3))
        return at_rate(before, last, n);
    }
    if (plan_.steps * passes_.full <= kMostEvents) return whole();
    steady = false;
    return at_rate(before, last, n);
  }

  std::int64_t events = 0;
  bool skipped = false;
  bool steady = true;

 private:
  static double pace_of(const sim::Outcome& before, const sim::Outcome& last, std::int64_t n) {
    return (last.time_us - before.time_us) / static_cast<double>(n);
  }

  /// The whole run, from `before` with n passes and `last` with 2n.
  sim::Outcome at_rate(const sim::Outcome& before, const sim::Outcome& last, std::int64_t n) {
    skipped = true;
    const double more = static_cast<double>(passes_.full - 2 * n) / static_cast<double>(n);
    sim::Outcome out = last;
    out.time_us += (last.time_us - before.time_us) * more;
    for (std::size_t r = 0; r < out.busy_us.size(); ++r)
      out.busy_us[r] += (last.busy_us[r] - before.busy_us[r]) * more;
    return out;
  }

  sim::Outcome walk(std::int64_t full) {
    sim::Passes p = passes_;
    p.full = full;
    events += plan_.steps * (full + (p.rest > 0 ? 1 : 0));
    return run_.execute(p);
  }

  const sim::Plan& plan_;
  const sim::Passes passes_;
  sim::Run<false> run_;
};

}  // namespace

SimResult simulate(const Program& program, const Knobs& knobs, const Network& network,
                   const MachineClass& machine, std::int64_t nbytes, const SimOptions& options) {
  check_call(program, knobs, network, nbytes);
  check(machine);
  check_walk(options.walk);
  const std::int64_t chunk = nbytes / program.nchunks;
  const sim::Plan plan = sim::compile(program, knobs, network, machine, chunk, options.walk);
  Simulation simulation(plan, sim::passes_of(chunk, pass_bytes(knobs, options.walk)));
  sim::Outcome outcome = options.exact ? simulation.whole() : simulation.extrapolated();

  SimResult result;
  const int gpus = options.process_gpus > 0 ? options.process_gpus : network.ranks();
  result.host_us = machine.host_us(options.launch, gpus, program.nchannels);
  result.gpu_us = machine.start_us_of(options.launch) + outcome.time_us;
  result.time_us = std::max(result.host_us, result.gpu_us);
  result.events = simulation.events;
  result.extrapolated = simulation.skipped;
  result.steady = simulation.steady;
  result.resource_bytes = sim::carried_bytes(program, network, chunk);
  for (const std::int64_t bytes : result.resource_bytes)
    result.resource_wire_bytes.push_back(static_cast<double>(bytes) * plan.wire_factor);
  result.resource_busy_us = std::move(outcome.busy_us);
  return result;
}

}  // namespace tuccl
